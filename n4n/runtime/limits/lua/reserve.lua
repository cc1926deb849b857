-- Reserves everything a draw needs from one subject, or nothing. n4n/core/limits/levels.py does the same in Python.
-- KEYS: levels, leases, leases of streams. ARGV: reservation, lease in ms, most running, most streams (-1: no limit), 1 for a stream;
-- then of each bucket its name, the amount, how full it may be, and what drains per ms.
-- Answers {reservation, bucket that is short or '', wait in ms, running, streams, Redis' time in ms, used of each bucket}.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local lease_ms, most, most_streams, stream = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local kept, level = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #kept, 2 do level[kept[i]] = tonumber(kept[i + 1]) end
local at = level['@'] or now
local past, bucket, wait = math.max(0, now - at), '', 0
if (level['!'] or 0) > now then bucket, wait = 'cooldown', level['!'] - now end
local before, after, full_ms = {}, {'@', string.format('%.17g', math.max(at, now))}, 0
for i = 6, #ARGV, 4 do
  local amount, room, per_ms = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local used = math.max(0, (level[ARGV[i]] or 0) - past * per_ms)
  local excess = used + amount - room
  if excess > 1e-6 and excess / per_ms > wait then bucket, wait = ARGV[i], excess / per_ms end
  before[#before + 1] = string.format('%.17g', used)
  after[#after + 1] = ARGV[i]
  after[#after + 1] = string.format('%.17g', used + amount)
  full_ms = math.max(full_ms, (used + amount) / per_ms)
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
local running, streams = redis.call('ZCARD', KEYS[2]), 0
if stream or most_streams >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
  streams = redis.call('ZCARD', KEYS[3])
end
if bucket == '' and most >= 0 and running >= most then
  bucket, wait = 'concurrency', 100
elseif bucket == '' and stream and most_streams >= 0 and streams >= most_streams then
  bucket, wait = 'streams', 100
end
local time = string.format('%.17g', now)
if bucket ~= '' then
  return {ARGV[1], bucket, string.format('%.17g', wait), running, streams, time, unpack(before)}
end
if #after > 2 then
  redis.call('HSET', KEYS[1], unpack(after))
  redis.call('PEXPIRE', KEYS[1], math.ceil(full_ms) + 1000)
end
local until_ms = string.format('%.17g', now + lease_ms)
running = running + redis.call('ZADD', KEYS[2], until_ms, ARGV[1])
redis.call('PEXPIRE', KEYS[2], math.ceil(lease_ms))
if stream then
  streams = streams + redis.call('ZADD', KEYS[3], until_ms, ARGV[1])
  redis.call('PEXPIRE', KEYS[3], math.ceil(lease_ms))
end
local used = {}
for i = 4, #after, 2 do used[#used + 1] = after[i] end
return {ARGV[1], '', '0', running, streams, time, unpack(used)}
