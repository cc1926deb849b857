-- Takes the one trial of a half-open breaker. KEYS as in tell.lua, one endpoint. ARGV: its name, for how long it is taken at most (s).
-- Answers {generation, number, Redis' time in s, name, fields, 1 if it was free}. Where Redis knows nothing, who asks knows more.
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local function text(number) return string.format('%.17g', number) end
local kept = redis.call('HMGET', KEYS[3], 'k', 'u')
local free = not kept[1] or (kept[1] ~= 'c' and now >= tonumber(kept[2]))
local head = redis.call('HMGET', KEYS[2], 'g', 'n')
local generation, number = head[1], tonumber(head[2] or 0)
if free then
  if not generation then
    generation = text(now)
    redis.call('HSET', KEYS[2], 'g', generation)
  end
  if not kept[1] then
    redis.call('HSET', KEYS[3], 's', 0.05, 'c', 0.05, 'at', text(now), 'w', 0, 'si', text(now), 'ga', 0, 'o', 1, 'f', '')
  end
  number = number + 1
  redis.call('HSET', KEYS[2], 'n', number)
  redis.call('HSET', KEYS[3], 'k', 'h', 'u', text(now + tonumber(ARGV[2])), 'na', text(now))
  redis.call('ZADD', KEYS[1], number, ARGV[1])
  for i = 1, 3 do redis.call('EXPIRE', KEYS[i], 86400) end
end
local fields = redis.call('HMGET', KEYS[3], 's', 'c', 'at', 'k', 'u', 'o', 'ga', 'lm', 'tm', 't5', 't9', 'vm', 'v5', 'v9')
return {generation or '', number, text(now), ARGV[1], fields, free and 1 or 0}
