-- Ends a reservation, once, and takes the provider's word for what is used. n4n/core/limits/levels.py does the same in Python.
-- KEYS and levels as in reserve.lua. ARGV: the subjects, the reservation, what was drawn and what was taken, ms from now for which nothing may be
-- taken (0: none), 1 for a stream and 2 more where it was refused without a word; and where a provider said so, what is used at least of each bucket of the first subject.
-- Answers the reservation, 1 if it was open, Redis' time in ms.
local t = redis.call('TIME')
local now, id, at = t[1] * 1000 + t[2] / 1000, ARGV[2], 1
local one, tokens, took_one, took_tokens, out_ms, flags = struct.unpack('<dddddd', ARGV[3])
local stream, refused = flags % 2, flags >= 2
local drawn, took = {one, tokens}, {took_one, took_tokens}
local open = redis.call('ZREM', KEYS[2], id)
local differs = open == 1 and (one ~= took_one or tokens ~= took_tokens)
for s = 1, #KEYS / 3 do
  local count, most, most_streams, leases
  count, most, most_streams, leases, at = struct.unpack('<dddd', ARGV[1], at)
  if s > 1 and leases == 1 then redis.call('ZREM', KEYS[3 * s - 1], id) end
  if stream == 1 and leases == 1 then redis.call('ZREM', KEYS[3 * s], id) end
  local told = s == 1 and (ARGV[4] or out_ms > 0 or refused)
  if told or (differs and count > 0) then
    local kept, level, mark = redis.call('GET', KEYS[3 * s - 2]) or '', {}, {}
    for i = 1, #kept, 17 do
      local code, used, as_of = struct.unpack('<c1dd', kept, i)
      level[code], mark[code] = used, as_of
    end
    local fields, full, part = {}, 0, 1
    if mark['~'] then part = math.min(1, level['~'] + math.max(0, now - mark['~']) * 0.05 / 60000) end
    for b = 1, count do
      local code, unit, capacity, pace
      code, unit, capacity, pace, at = struct.unpack('<c1ddd', ARGV[1], at)
      pace = pace * part
      local used, as_of, change = level[code] or 0, mark[code] or now, 0
      if open == 1 then change = took[unit + 1] - math.min(drawn[unit + 1], capacity) end
      used = math.max(0, math.max(0, used - math.max(0, now - as_of) * pace) + change)
      if s == 1 and ARGV[4] then used = math.max(used, (struct.unpack('<d', ARGV[4], 8 * b - 7))) end
      full = math.max(full, used / pace)
      fields[b], mark[code] = struct.pack('<c1dd', code, used, math.max(as_of, now)), nil
    end
    if s == 1 and out_ms > 0 then level['!'], mark['!'] = 0, math.max(mark['!'] or 0, now + out_ms) end
    if s == 1 and refused and not (mark['~'] and now - mark['~'] < 5000) then level['~'], mark['~'] = math.max(0.1, part * 0.7), now end
    if mark['~'] then full = math.max(full, (1 - level['~']) * 60000 / 0.05) end
    if mark['!'] then full = math.max(full, mark['!'] - now) end
    for code, as_of in pairs(mark) do fields[#fields + 1] = struct.pack('<c1dd', code, level[code], as_of) end -- not ours: kept as it is
    redis.call('SET', KEYS[3 * s - 2], table.concat(fields), 'PX', math.ceil(full) + 1000)
  else
    at = at + 25 * count
  end
end
return id .. struct.pack('<dd', open, now)
