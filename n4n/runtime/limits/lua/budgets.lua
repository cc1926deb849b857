-- What budgets add to reserve, settle and renew, in front of them. n4n/core/limits/purse.py does the same in Python.
-- A purse, of a key or a tenant, is a hash: ru, rt, what is reserved of pico-USD and tokens; and of each budget NAME:w, when its window
-- began, NAME:s, what is spent in it, NAME:k, 2 where a control plane told of its spending, 1 where it began lately, NAME:u, what was spent
-- while that was not known; of a rolling one NAME#slot. And a sorted set: "pico-USD tokens reservation" by when it expires.
-- KEYS: those of the limits, then of each purse both. The budgets of a purse are two words of ARGV. The first has ten of each budget in it: name,
-- unit (0: pico-USD, 1: tokens), amount, 1 for a soft one, slot in ms (0: of the calendar), slots, when the window before began, when this one
-- did, when it ends, since when; the second what is spent of each at least.
local young_ms, unknown_share, kept_ms = 10000, 0.1, 8640000000
local function exact(number) return string.format('%.17g', number) end
local function loaded(at, now)
  local purse = {key = KEYS[at], open = KEYS[at + 1], kept = {}, slots = {}, set = {}, del = {}}
  local fields = redis.call('HGETALL', purse.key)
  purse.lasts = #fields == 0 -- it is kept for long from each new window or slot on
  for i = 1, #fields, 2 do
    local mark = string.find(fields[i], '#', 1, true)
    if mark then
      local name = string.sub(fields[i], 1, mark - 1)
      purse.slots[name] = purse.slots[name] or {}
      purse.slots[name][tonumber(string.sub(fields[i], mark + 1))] = tonumber(fields[i + 1])
    else
      purse.kept[fields[i]] = tonumber(fields[i + 1])
    end
  end
  return purse
end
local function put(purse, field, value)
  purse.kept[field], purse.set[field] = value, value
end
local function freed(purse, now)
  local usd, tokens = purse.kept.ru or 0, purse.kept.rt or 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', purse.open, '-inf', now)) do
    local of_usd, of_tokens = string.match(member, '^(%S+) (%S+) ')
    usd, tokens = usd - tonumber(of_usd), tokens - tonumber(of_tokens)
    redis.call('ZREM', purse.open, member)
  end
  if (usd ~= 0 or tokens ~= 0) and redis.call('EXISTS', purse.open) == 0 then usd, tokens = 0, 0 end
  if usd ~= (purse.kept.ru or 0) then put(purse, 'ru', math.max(0, usd)) end
  if tokens ~= (purse.kept.rt or 0) then put(purse, 'rt', math.max(0, tokens)) end
end
local function moved(purse, term, now)
  local name = term.name
  local begins
  if term.slot_ms > 0 then
    term.window, begins = math.floor(now / term.slot_ms), term.since
    local slots = purse.slots[name] or {}
    purse.slots[name] = slots
    for slot in pairs(slots) do
      if slot < term.window - term.slots then
        slots[slot] = nil
        purse.del[#purse.del + 1] = name .. '#' .. exact(slot)
      end
    end
  else
    local window = now >= term.ends and term.ends or now >= term.begins and term.begins or term.previous
    local before = purse.kept[name .. ':w']
    if not before or window > before then
      put(purse, name .. ':w', window)
      purse.lasts = true
      put(purse, name .. ':s', 0)
      put(purse, name .. ':u', 0)
    else
      window = before
    end
    term.window, begins = window, window
    if term.floor > 0 and term.begins == window and term.floor > purse.kept[name .. ':s'] then put(purse, name .. ':s', term.floor) end
  end
  if not purse.kept[name .. ':k'] and now - begins < young_ms then put(purse, name .. ':k', 1) end
  term.known = purse.kept[name .. ':k'] ~= nil
end
local function leveled(purse, term, now)
  term.reserved = purse.kept[term.unit == 0 and 'ru' or 'rt'] or 0
  term.unseeded = purse.kept[term.name .. ':u'] or 0
  if term.slot_ms == 0 then
    term.spent, term.wait = purse.kept[term.name .. ':s'] or 0, (term.window < term.ends and term.ends or now) - now
    return
  end
  local slots, order, spent, wait = purse.slots[term.name], {}, 0, 0
  for slot, amount in pairs(slots) do order[#order + 1], spent = slot, spent + amount end
  table.sort(order)
  local left = spent
  for _, slot in ipairs(order) do
    left = left - slots[slot]
    if left < term.amount then
      wait = (slot + term.slots + 1) * term.slot_ms - now
      break
    end
  end
  term.spent, term.wait = spent, wait
end
local function words_of(text)
  local words = {}
  for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
  return words
end
local function terms_at(at)
  local words, floors, terms = words_of(ARGV[at]), words_of(ARGV[at + 1]), {}
  for n, floor in ipairs(floors) do
    local i = 10 * n - 9
    terms[n] = {
      name = words[i], unit = tonumber(words[i + 1]), amount = tonumber(words[i + 2]), soft = words[i + 3] == '1',
      slot_ms = tonumber(words[i + 4]), slots = tonumber(words[i + 5]), previous = tonumber(words[i + 6]), begins = tonumber(words[i + 7]),
      ends = tonumber(words[i + 8]), since = tonumber(words[i + 9]), floor = tonumber(floor),
    }
  end
  return terms, at + 2
end
local function booked(purse, term, window, spent, now)
  if spent == 0 then return end
  if term.slot_ms > 0 then
    local slots = purse.slots[term.name]
    purse.lasts = purse.lasts or not slots[window]
    slots[window] = (slots[window] or 0) + spent
    purse.set[term.name .. '#' .. exact(window)] = slots[window]
  elseif window == term.window then
    put(purse, term.name .. ':s', (purse.kept[term.name .. ':s'] or 0) + spent)
  else
    return
  end
  if not term.known then put(purse, term.name .. ':u', (purse.kept[term.name .. ':u'] or 0) + spent) end
end
local function stored(purse)
  local words = {}
  for field, value in pairs(purse.set) do words[#words + 1], words[#words + 2] = field, exact(value) end
  if #words > 0 then
    redis.call('HSET', purse.key, unpack(words))
    if purse.lasts then redis.call('PEXPIRE', purse.key, kept_ms) end
  end
  if #purse.del > 0 then redis.call('HDEL', purse.key, unpack(purse.del)) end
end
local function time_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + t[2] / 1000
end
local function limits_keys(count)
  local keys = {}
  for i = 1, #KEYS - 2 * count do keys[i] = KEYS[i] end
  return keys
end
