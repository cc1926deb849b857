-- What cools, for people to see. KEYS: what cools by when it is back. Answers {Redis' time in ms, name, until in ms, …}.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
return {string.format('%.17g', now), unpack(redis.call('ZRANGEBYSCORE', KEYS[1], now, '+inf', 'WITHSCORES', 'LIMIT', 0, 2048))}
