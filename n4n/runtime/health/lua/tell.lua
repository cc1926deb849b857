-- Folds news of endpoints into what everybody knows of them. n4n/core/health/standing.py does the same in Python.
-- KEYS: endpoints by the number of their last change, {generation, number}, then one for each endpoint.
-- ARGV: a number in [0, 1); then of each endpoint: its name, its policy (11 numbers), runs ("g12 b1"), and "count mean" of the latency,
-- "count mean bucket:count …" of first tokens and of speed, empty where nothing came.
-- Answers {generation, number, Redis' time in s, name, fields, …}. Fields as in look.lua.
local t = redis.call('TIME')
local now, jitter = t[1] + t[2] / 1000000, tonumber(ARGV[1])
local FADE, SMOOTH, LEAST, OCTAVE, DAY = 300, 0.2, 0.01, 4, 86400
local STEPS, VALUES = {0.05, 0.25, 1}, {g = 1, h = 0.5, b = 0}
local function text(number) return string.format('%.17g', number) end
local function whole(score) if score >= 0.999 then return 1 end return score end
local function numbers(words)
  local found = {}
  for word in string.gmatch(words, '%S+') do found[#found + 1] = tonumber(word) end
  return found
end

local function open(e, p)
  local times = math.min(2 ^ math.min(e.o, 16), 8)
  e.k, e.u, e.o, e.f = 'o', now + p[10] * times * (1 + 0.2 * jitter), e.o + 1, {}
end
local function phase(e)
  if e.k == 'o' and now >= e.u then return 'h' end
  return e.k
end
local function happened(e, p, event)
  local at = phase(e)
  if at == 'c' and event == 'g' then
    if p[11] == 1 then e.f = {} elseif #e.f > 0 then table.remove(e.f, 1) end
  elseif at == 'c' and event ~= 'a' then
    local standing, sum = {}, 0
    for _, one in ipairs(e.f) do
      if one[1] > now - p[9] then standing[#standing + 1], sum = one, sum + one[2] end
    end
    local weight = 1 - VALUES[event]
    e.f = standing
    if sum + weight < p[8] then standing[#standing + 1] = {now, weight} else
      if now >= e.u + 8 * p[10] then e.o = 0 end
      open(e, p)
    end
  elseif at == 'h' and event == 'g' then e.k, e.u, e.f = 'c', now, {}
  elseif at == 'h' and event == 'a' then e.k, e.u, e.f = 'o', math.min(now, e.u), {}
  elseif at == 'h' then open(e, p) end
end

local function fold(e, p, runs)
  local part = 2 ^ (-math.max(0, now - e.at) / p[3])
  local score, ceiling = whole(p[4] + (e.s - p[4]) * part), e.c
  if ceiling < p[4] then ceiling = p[4] + (ceiling - p[4]) * part end
  ceiling = whole(ceiling)
  local least, scored = math.sqrt(p[5]), false
  local rate = math.sqrt(math.max(score, p[5]))
  for letter, count in string.gmatch(runs, '(%a)(%d+)') do
    count = tonumber(count)
    local event, before = string.lower(letter), phase(e)
    for _ = 1, math.min(count, event == 'g' and #e.f + 1 or 64) do happened(e, p, event) end
    local value, after = VALUES[event], phase(e)
    if value then
      scored = true
      rate = math.max(least, value + (rate - value) * (1 - (letter == event and p[1] or p[2])) ^ count)
      if after ~= before or rate <= least then ceiling, e.si, e.w = STEPS[1], now, 0 end
      if event == 'g' then
        e.w = e.w + count
        if letter == event then e.ga = now end
        if ceiling < 1 and e.w >= p[7] and now - e.si >= p[6] and after == 'c' then
          local at = 1
          while STEPS[at] <= ceiling + 1e-6 do at = at + 1 end
          ceiling, e.w, e.si = STEPS[at], 0, now
        end
      else e.w = 0 end
    end
  end
  if scored then e.s, e.c, e.at = whole(rate * rate), ceiling, now end
end

local function averaged(mean, count, came)
  if not mean then return came end
  return came + (mean - came) * (1 - SMOOTH) ^ count
end
local function spread(hash, kept, name, lowest, sample, set)
  if sample == '' then return end
  local first, masses, sum, order = numbers(string.match(sample, '^%S+ %S+')), {}, 0, {}
  local fade = 2 ^ (-math.max(0, now - (tonumber(kept[name .. 'a']) or 0)) / FADE)
  for at, mass in string.gmatch(kept[name .. 'h'] or '', '(%d+):(%S+)') do
    if mass * fade >= LEAST then masses[tonumber(at)] = mass * fade end
  end
  for at, count in string.gmatch(sample, '(%d+):(%d+)') do
    masses[tonumber(at)] = (masses[tonumber(at)] or 0) + count
  end
  local told = {}
  for at, mass in pairs(masses) do order[#order + 1], sum = at, sum + mass end
  table.sort(order)
  for _, at in ipairs(order) do told[#told + 1] = at .. ':' .. string.format('%.9g', masses[at]) end
  local function quantile(part)
    local due = part * sum
    for _, at in ipairs(order) do
      if due <= masses[at] then return lowest * 2 ^ ((at + due / masses[at]) / OCTAVE) end
      due = due - masses[at]
    end
    return lowest * 2 ^ ((order[#order] + 1) / OCTAVE)
  end
  set(name .. 'm', averaged(tonumber(kept[name .. 'm']), first[1], first[2]))
  set(name .. 'a', now)
  set(name .. '5', quantile(0.5))
  set(name .. '9', quantile(0.95))
  set(name .. 'h', table.concat(told, ' '))
end

local generation = redis.call('HGET', KEYS[2], 'g')
if not generation then
  generation = text(now)
  redis.call('HSET', KEYS[2], 'g', generation, 'n', 0)
end
local number = tonumber(redis.call('HGET', KEYS[2], 'n'))
local FIELDS = {'s', 'c', 'at', 'k', 'u', 'o', 'ga', 'lm', 'tm', 't5', 't9', 'vm', 'v5', 'v9'}
local answer, changed = {}, false
for i = 3, #KEYS do
  local first, after, kept, raw = 2 + (i - 3) * 6, {}, {}, redis.call('HGETALL', KEYS[i])
  for j = 1, #raw, 2 do kept[raw[j]] = raw[j + 1] end
  local function set(field, value)
    if type(value) == 'number' then value = text(value) end
    after[#after + 1], after[#after + 2] = field, value
  end
  local p = numbers(ARGV[first + 1])
  local function was(field, default) return tonumber(kept[field]) or default end
  local e = {s = was('s', p[4]), c = was('c', 1), at = was('at', now), w = was('w', 0), si = was('si', 0), ga = was('ga', 0),
    k = kept.k or 'c', u = was('u', 0), o = was('o', 0), f = {}}
  for at, weight in string.gmatch(kept.f or '', '(%S+):(%S+)') do e.f[#e.f + 1] = {tonumber(at), tonumber(weight)} end
  fold(e, p, ARGV[first + 2])
  local recent = {}
  for _, one in ipairs(e.f) do recent[#recent + 1] = text(one[1]) .. ':' .. text(one[2]) end
  for _, field in ipairs({'s', 'c', 'at', 'w', 'si', 'ga', 'k', 'u', 'o'}) do set(field, e[field]) end
  set('f', table.concat(recent, ' '))
  local latency = numbers(ARGV[first + 3])
  if #latency == 2 then set('lm', averaged(tonumber(kept.lm), latency[1], latency[2])) end
  spread(KEYS[i], kept, 't', 1, ARGV[first + 4], set)
  spread(KEYS[i], kept, 'v', 0.25, ARGV[first + 5], set)
  local told, share = was('ns', -1), math.max(p[5], math.min(e.s, e.c))
  if math.abs(share - told) > 0.02 or (share == 1 and told < 1) or e.k ~= kept.k or e.u ~= was('u', 0) or now - was('na', 0) >= 2 then
    number, changed = number + 1, true
    set('ns', share)
    set('na', now)
    redis.call('ZADD', KEYS[1], number, ARGV[first])
  end
  redis.call('HSET', KEYS[i], unpack(after))
  redis.call('EXPIRE', KEYS[i], DAY)
  answer[#answer + 1] = ARGV[first]
  answer[#answer + 1] = redis.call('HMGET', KEYS[i], unpack(FIELDS))
end
if changed then redis.call('HSET', KEYS[2], 'n', number) end
redis.call('EXPIRE', KEYS[1], DAY)
redis.call('EXPIRE', KEYS[2], DAY)
return {generation, number, text(now), unpack(answer)}
