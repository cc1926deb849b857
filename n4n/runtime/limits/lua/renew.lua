-- Lets leases last on, those too that a restarted server lost, and adds what was used while it was away.
-- KEYS and levels as in reserve.lua, of one subject or several. ARGV: the subjects, lease in ms, what is added to each bucket ('': nothing), what
-- is added where the levels are lost ('': the same); then of each reservation its name and 1 for a stream. Answers Redis' time in ms.
-- '^' among the levels: since when they are there anew after they were lost; for 10 s others bring their part of them.
local t = redis.call('TIME')
local now, lease_ms, at, from = t[1] * 1000 + t[2] / 1000, tonumber(ARGV[2]), 1, 1
local until_ms = string.format('%.17g', now + lease_ms)
for s = 1, #KEYS / 3 do
  local count, most, most_streams, leases
  count, most, most_streams, leases, at = struct.unpack('<dddd', ARGV[1], at)
  if ARGV[3] ~= '' and count > 0 then
    local kept, level, mark = redis.call('GET', KEYS[3 * s - 2]) or '', {}, {}
    for i = 1, #kept, 17 do
      local code, used, as_of = struct.unpack('<c1dd', kept, i)
      level[code], mark[code] = used, as_of
    end
    local lost = ARGV[4] ~= '' and (kept == '' or (mark['^'] and now - mark['^'] < 10000))
    if lost and kept == '' then level['^'], mark['^'] = 0, now end
    local fields, full, part = {}, 0, 1
    if mark['~'] then
      part = math.min(1, level['~'] + math.max(0, now - mark['~']) * 0.05 / 60000)
      full = (1 - part) * 60000 / 0.05
    end
    for b = 1, count do
      local code, unit, capacity, pace, added
      code, unit, capacity, pace, at = struct.unpack('<c1ddd', ARGV[1], at)
      added, from = struct.unpack('<d', lost and ARGV[4] or ARGV[3], from)
      pace = pace * part
      local used, as_of = level[code] or 0, mark[code] or now
      used, as_of = math.max(0, used - math.max(0, now - as_of) * pace) + added, math.max(as_of, now)
      full = math.max(full, used / pace)
      fields[b], mark[code] = struct.pack('<c1dd', code, used, as_of), nil
    end
    if mark['!'] then full = math.max(full, mark['!'] - now) end
    for code, as_of in pairs(mark) do fields[#fields + 1] = struct.pack('<c1dd', code, level[code], as_of) end
    redis.call('SET', KEYS[3 * s - 2], table.concat(fields), 'PX', math.ceil(full) + 1000)
  else
    at = at + 25 * count
  end
  if leases == 1 then
    for i = 5, #ARGV, 2 do
      redis.call('ZADD', KEYS[3 * s - 1], until_ms, ARGV[i])
      redis.call('PEXPIRE', KEYS[3 * s - 1], math.ceil(lease_ms))
      if ARGV[i + 1] == '1' then
        redis.call('ZADD', KEYS[3 * s], until_ms, ARGV[i])
        redis.call('PEXPIRE', KEYS[3 * s], math.ceil(lease_ms))
      end
    end
  end
end
return string.format('%.17g', now)
