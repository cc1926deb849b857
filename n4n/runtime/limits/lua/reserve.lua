-- Reserves everything a draw needs of all subjects, or nothing. n4n/core/limits/levels.py does the same in Python.
-- KEYS: of each subject its levels, leases, leases of streams. ARGV: the subjects, the reservation, what is drawn (n4n/runtime/limits/packed.py).
-- Levels are 17 bytes for each bucket: its code, what is used, and as of when; of '!', until when nothing may be taken;
-- of '~', which part of the limit is believed in since it was cut (n4n/core/limits/caution.py).
-- Answers the reservation and numbers: who is short (0: nobody), of which bucket, for how long, Redis' time; of each subject running, streams, used.
local t = redis.call('TIME')
local now, id = t[1] * 1000 + t[2] / 1000, ARGV[2]
local one, tokens, reserve, stream, lease = struct.unpack('<ddddd', ARGV[3])
local drawn, at, whose, short, wait = {one, tokens}, 1, 0, 0, 0
local told, taken, after, full_ms, leased = {}, {}, {}, {}, {}
for s = 1, #KEYS / 3 do
  local count, most, most_streams, leases
  count, most, most_streams, leases, at = struct.unpack('<dddd', ARGV[1], at)
  local kept, level, mark = redis.call('GET', KEYS[3 * s - 2]) or '', {}, {}
  for i = 1, #kept, 17 do
    local code, used, as_of = struct.unpack('<c1dd', kept, i)
    level[code], mark[code] = used, as_of
  end
  local fields, full, n = {}, 0, #told + 2
  told[n - 1], told[n], taken[n - 1], taken[n] = 0, 0, 0, 0
  if mark['!'] and mark['!'] > now then
    full = mark['!'] - now
    if full > wait then whose, short, wait = s, -1, full end
  else
    mark['!'] = nil
  end
  local part = 1
  if mark['~'] then
    part = math.min(1, level['~'] + math.max(0, now - mark['~']) * 0.05 / 60000)
    full = math.max(full, (1 - part) * 60000 / 0.05)
    if part == 1 then mark['~'] = nil end
  end
  for b = 1, count do
    local code, unit, capacity, pace
    code, unit, capacity, pace, at = struct.unpack('<c1ddd', ARGV[1], at)
    pace = pace * part
    local amount, used, as_of = math.min(drawn[unit + 1], capacity), level[code] or 0, mark[code] or now
    used = math.max(0, used - math.max(0, now - as_of) * pace)
    local lacks = (used + amount - math.max(capacity * part * (1 - reserve), amount)) / pace
    full = math.max(full, (used + amount) / pace)
    if lacks * pace > 1e-6 and lacks > wait then whose, short, wait = s, b, lacks end
    fields[b] = struct.pack('<c1dd', code, used + amount, math.max(as_of, now))
    told[n + b], taken[n + b], mark[code] = used, amount, nil
  end
  if count > 0 then
    for code, as_of in pairs(mark) do fields[#fields + 1] = struct.pack('<c1dd', code, level[code], as_of) end -- not ours: kept as it is
    after[s], full_ms[s] = table.concat(fields), math.ceil(full) + 1000
  end
  if leases == 1 then
    leased[s] = n
    redis.call('ZREMRANGEBYSCORE', KEYS[3 * s - 1], '-inf', now)
    told[n - 1] = redis.call('ZCARD', KEYS[3 * s - 1])
    if stream == 1 or most_streams >= 0 then
      redis.call('ZREMRANGEBYSCORE', KEYS[3 * s], '-inf', now)
      told[n] = redis.call('ZCARD', KEYS[3 * s])
    end
    if most >= 0 and told[n - 1] >= most then
      if wait < 100 then whose, short, wait = s, -2, 100 end
    elseif stream == 1 and most_streams >= 0 and told[n] >= most_streams and wait < 100 then
      whose, short, wait = s, -3, 100
    end
  end
end
if whose == 0 then
  local until_ms, lease_ms = string.format('%.17g', now + lease), math.ceil(lease)
  for s = 1, #KEYS / 3 do
    if after[s] then redis.call('SET', KEYS[3 * s - 2], after[s], 'PX', full_ms[s]) end
    local n = leased[s]
    if n then
      taken[n - 1] = redis.call('ZADD', KEYS[3 * s - 1], until_ms, id)
      redis.call('PEXPIRE', KEYS[3 * s - 1], lease_ms)
      if stream == 1 then
        taken[n] = redis.call('ZADD', KEYS[3 * s], until_ms, id)
        redis.call('PEXPIRE', KEYS[3 * s], lease_ms)
      end
    end
  end
  for i = 1, #told do told[i] = told[i] + taken[i] end
end
return id .. struct.pack('<' .. string.rep('d', 4 + #told), whose, short, wait, now, unpack(told))
