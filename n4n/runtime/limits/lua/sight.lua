-- A router says that it lives, and sees how many do and what all of them know to be cooling.
-- KEYS: routers by when they were last due, what cools by when it is back. ARGV: this router, ms until its next word is overdue;
-- then of each cooldown that it brings: its name, ms from now. The longest wins. Answers {routers, Redis' time in ms, name, until in ms, …}.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], string.format('%.17g', now + tonumber(ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
for i = 3, #ARGV, 2 do
  redis.call('ZADD', KEYS[2], 'GT', string.format('%.17g', now + tonumber(ARGV[i + 1])), ARGV[i])
end
return {redis.call('ZCARD', KEYS[1]), string.format('%.17g', now), unpack(redis.call('ZRANGE', KEYS[2], 0, 4095, 'WITHSCORES'))}
