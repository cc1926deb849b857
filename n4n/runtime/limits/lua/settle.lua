-- Ends a reservation, once, and takes the provider's word for what is used. n4n/core/limits/levels.py does the same in Python.
-- KEYS as in reserve.lua. ARGV: reservation, ms from now for which nothing may be taken (0: none);
-- then of each bucket its name, what is given back, what is used at least, and what drains per ms.
-- Answers {reservation, 1 if it was open, Redis' time in ms}.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local open = redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
local kept, level = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #kept, 2 do level[kept[i]] = tonumber(kept[i + 1]) end
local at = level['@'] or now
local past, after, full_ms = math.max(0, now - at), {'@', string.format('%.17g', math.max(at, now))}, 0
for i = 3, #ARGV, 4 do
  local per_ms = tonumber(ARGV[i + 3])
  local used = math.max(0, (level[ARGV[i]] or 0) - past * per_ms)
  if open == 1 then used = math.max(0, used - tonumber(ARGV[i + 1])) end
  used = math.max(used, tonumber(ARGV[i + 2]))
  after[#after + 1] = ARGV[i]
  after[#after + 1] = string.format('%.17g', used)
  full_ms = math.max(full_ms, used / per_ms)
end
local free_at, for_ms = level['!'] or 0, tonumber(ARGV[2])
if for_ms > 0 then
  free_at = math.max(free_at, now + for_ms)
  after[#after + 1] = '!'
  after[#after + 1] = string.format('%.17g', free_at)
end
if #after > 2 then
  redis.call('HSET', KEYS[1], unpack(after))
  redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(full_ms, free_at - now)) + 1000)
end
return {ARGV[1], open, string.format('%.17g', now)}
