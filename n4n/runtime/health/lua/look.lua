-- What changed since a number. KEYS: endpoints by the number of their last change, {generation, number}; those of the endpoints share
-- the hash tag and are named by ARGV[3] and the endpoint. ARGV: the number, the most that is told at once, how their keys begin.
-- Answers {generation, number of the last that is told, Redis' time in s, name, fields, …}; fields, as a MessagePack array: score, ceiling
-- and as of when; the breaker (c, o or h), until when, how often it opened; the last live success; mean latency; mean, median, 95 % of
-- first tokens, and of speed; what part of calls fails usually.
local t = redis.call('TIME')
local head = redis.call('HMGET', KEYS[2], 'g', 'n')
local answer, number, most = {}, tonumber(head[2] or 0), tonumber(ARGV[2])
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, most)
if #found == 2 * most then number = tonumber(found[#found]) end
for i = 1, #found, 2 do
  local value = redis.call('GET', ARGV[3] .. found[i])
  if value then
    answer[#answer + 1] = found[i]
    answer[#answer + 1] = string.sub(value, 3, 2 + string.byte(value, 1) * 256 + string.byte(value, 2))
  else
    redis.call('ZREM', KEYS[1], found[i])
  end
end
return {head[1] or '', number, string.format('%.17g', t[1] + t[2] / 1000000), unpack(answer)}
