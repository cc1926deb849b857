-- Lets leases last on, those too that a restarted server lost, and adds what was used while it was away.
-- KEYS as in reserve.lua. ARGV: lease in ms, number of buckets; of each bucket its name, what is added, what drains per ms;
-- then of each reservation its name and 1 for a stream. Answers Redis' time in ms.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local lease_ms, last = tonumber(ARGV[1]), 2 + 3 * tonumber(ARGV[2])
local kept, level, adds = redis.call('HGETALL', KEYS[1]), {}, false
for i = 1, #kept, 2 do level[kept[i]] = tonumber(kept[i + 1]) end
local at = level['@'] or now
local past, after, full_ms = math.max(0, now - at), {'@', string.format('%.17g', math.max(at, now))}, 0
for i = 3, last, 3 do
  local added, per_ms = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local used = math.max(0, (level[ARGV[i]] or 0) - past * per_ms) + added
  adds = adds or added > 0
  after[#after + 1] = ARGV[i]
  after[#after + 1] = string.format('%.17g', used)
  full_ms = math.max(full_ms, used / per_ms)
end
if adds then
  redis.call('HSET', KEYS[1], unpack(after))
  redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(full_ms, (level['!'] or 0) - now)) + 1000)
end
local until_ms = string.format('%.17g', now + lease_ms)
for i = last + 1, #ARGV, 2 do
  redis.call('ZADD', KEYS[2], until_ms, ARGV[i])
  redis.call('PEXPIRE', KEYS[2], math.ceil(lease_ms))
  if ARGV[i + 1] == '1' then
    redis.call('ZADD', KEYS[3], until_ms, ARGV[i])
    redis.call('PEXPIRE', KEYS[3], math.ceil(lease_ms))
  end
end
return string.format('%.17g', now)
