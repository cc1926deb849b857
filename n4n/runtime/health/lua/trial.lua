-- Takes the one trial of a half-open breaker. KEYS as in tell.lua, one endpoint. ARGV: its name, for how long it is taken at most (s).
-- Answers {generation, number, Redis' time in s, name, fields, 1 if it was free}. Where Redis knows nothing, who asks knows more.
local t = redis.call('TIME')
local now, value = t[1] + t[2] / 1000000, redis.call('GET', KEYS[3])
local seen, rest = {0.05, 0.05, now, 'o', 0, 1, 0, false, false, false, false, false, false, false, 0}, {0, now, {}, 0, {}, 0, {}, -1, 0, 0}
if value then
  local long = string.byte(value, 1) * 256 + string.byte(value, 2)
  seen, rest = cmsgpack.unpack(string.sub(value, 3, 2 + long)), cmsgpack.unpack(string.sub(value, 3 + long))
end
local free = seen[4] ~= 'c' and now >= seen[5]
local head = redis.call('HMGET', KEYS[2], 'g', 'n')
local generation, number = head[1] or string.format('%.17g', now), tonumber(head[2] or 0)
if free then
  number, seen[4], seen[5], rest[9] = number + 1, 'h', now + tonumber(ARGV[2]), now
  local told = cmsgpack.pack(seen)
  redis.call('SET', KEYS[3], string.char(math.floor(#told / 256), #told % 256) .. told .. cmsgpack.pack(rest), 'EX', 86400)
  redis.call('HSET', KEYS[2], 'g', generation, 'n', number)
  redis.call('ZADD', KEYS[1], number, ARGV[1])
  redis.call('EXPIRE', KEYS[1], 86400)
  redis.call('EXPIRE', KEYS[2], 86400)
end
return {generation, number, string.format('%.17g', now), ARGV[1], cmsgpack.pack(seen), free and 1 or 0}
