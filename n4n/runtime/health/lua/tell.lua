-- Folds news of endpoints into what everybody knows of them. n4n/core/health/standing.py does the same in Python.
-- KEYS: endpoints by the number of their last change, {generation, number}, then one for each endpoint.
-- ARGV: a number in [0, 1); then of each endpoint: its name, its policy (11 numbers), runs ("g12 b1"), and "count mean" of the latency,
-- "count mean bucket:count …" of first tokens and of speed, empty where nothing came.
-- A value is two bytes of length, the fields that are told (look.lua) and the rest, both as MessagePack; what is not known is false.
-- Answers {generation, number, Redis' time in s, name, fields, …}.
local t = redis.call('TIME')
local now, jitter = t[1] + t[2] / 1000000, tonumber(ARGV[1])
local FADE, SMOOTH, LEAST, OCTAVE, DAY = 300, 0.2, 0.01, 4, 86400
local STEPS, VALUES = {0.05, 0.25, 1}, {g = 1, h = 0.5, b = 0}
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
local function happened(e, p, event, usual)
  local at = phase(e)
  if at == 'c' and event == 'g' then
    if p[11] == 1 then e.f = {} elseif #e.f > 0 then table.remove(e.f, 1) end
  elseif at == 'c' and event ~= 'a' then
    local standing, sum = {}, 0
    for _, one in ipairs(e.f) do
      if one[1] > now - p[9] then standing[#standing + 1], sum = one, sum + one[2] end
    end
    local weight = 1 - VALUES[event]
    if usual > 0.15 then weight = weight * (0.15 / usual) ^ 2 end
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
  local usual = e.b
  e.b = e.b * part
  local least, scored = math.sqrt(p[5]), false
  local rate = math.sqrt(math.max(score, p[5]))
  for letter, count in string.gmatch(runs, '(%a)(%d+)') do
    count = tonumber(count)
    local event, before = string.lower(letter), phase(e)
    local value, weight = VALUES[event], letter == event and p[1] or p[2]
    if event == 'g' then
      for _ = 1, math.min(count, #e.f + 1) do happened(e, p, event, 0) end
      rate = 1 + (rate - 1) * (1 - weight) ^ count
    elseif event == 'a' then happened(e, p, event, 0)
    else
      for _ = 1, math.min(count, 64) do
        happened(e, p, event, rate <= least and 0 or e.b)
        if e.b <= 0.05 then e.x = math.min(8, e.x + 1 - value) else e.b = e.b + 0.05 * (1 - value - e.b) end
        rate = math.max(least, value + (rate - value) * (1 - weight))
      end
    end
    local after = phase(e)
    if value then
      scored = true
      if after ~= before or rate <= least then ceiling, e.si, e.w = STEPS[1], now, 0 end
      if value == 1 then e.b, e.x = (1 - (1 - e.b) * 0.95 ^ e.x) * 0.95 ^ count, 0 end
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
  if scored then e.s, e.c, e.at = whole(rate * rate), ceiling, now else e.b = usual end
end

local function averaged(mean, count, came)
  if not mean then return came end
  return came + (mean - came) * (1 - SMOOTH) ^ count
end
local function sampled(one, sample)
  if sample == '' then return end
  local fade, masses = 2 ^ (-math.max(0, now - one.a) / FADE), {}
  for at, mass in pairs(one.h) do
    if mass * fade >= LEAST then masses[at] = mass * fade end
  end
  local count, mean, buckets = string.match(sample, '^(%S+) (%S+) (.*)$')
  for at, more in string.gmatch(buckets, '(%d+):(%d+)') do
    at = tonumber(at)
    masses[at] = (masses[at] or 0) + more
  end
  one.m, one.a, one.h = averaged(one.m, tonumber(count), tonumber(mean)), now, masses
end
local function quantiles(one, lowest)
  local order, sum = {}, 0
  for at, mass in pairs(one.h) do order[#order + 1], sum = at, sum + mass end
  if #order == 0 then return false, false end
  table.sort(order)
  local function quantile(part)
    local due = part * sum
    for _, at in ipairs(order) do
      if due <= one.h[at] then return lowest * 2 ^ ((at + due / one.h[at]) / OCTAVE) end
      due = due - one.h[at]
    end
    return lowest * 2 ^ ((order[#order] + 1) / OCTAVE)
  end
  return quantile(0.5), quantile(0.95)
end

local head, KEPT = redis.call('HMGET', KEYS[2], 'g', 'n'), redis.call('MGET', unpack(KEYS, 3))
local generation, number, changed, answer = head[1], tonumber(head[2] or 0), {}, {}
if not generation then
  generation = string.format('%.17g', now)
  redis.call('HSET', KEYS[2], 'g', generation, 'n', 0)
end
for i = 1, #KEPT do
  local first, value = 2 + (i - 1) * 6, KEPT[i]
  local p, e, rest = numbers(ARGV[first + 1]), nil, nil
  if value then
    local long = string.byte(value, 1) * 256 + string.byte(value, 2)
    local s = cmsgpack.unpack(string.sub(value, 3, 2 + long))
    rest = cmsgpack.unpack(string.sub(value, 3 + long))
    e = {s = s[1], c = s[2], at = s[3], k = s[4], u = s[5], o = s[6], ga = s[7], l = s[8], t = {m = s[9], a = rest[4], h = rest[5]},
      v = {m = s[12], a = rest[6], h = rest[7]}, w = rest[1], si = rest[2], f = rest[3], q = {s[10], s[11], s[13], s[14]}, b = s[15], x = rest[10]}
  else
    e = {s = p[4], c = 1, at = now, k = 'c', u = 0, o = 0, ga = 0, l = false, t = {m = false, a = 0, h = {}},
      v = {m = false, a = 0, h = {}}, w = 0, si = 0, f = {}, q = {false, false, false, false}, b = 0, x = 0}
    rest = {0, 0, {}, 0, {}, 0, {}, -1, 0, 0}
  end
  local k, u = e.k, e.u
  fold(e, p, ARGV[first + 2])
  if ARGV[first + 3] ~= '' then
    local latency = numbers(ARGV[first + 3])
    e.l = averaged(e.l, latency[1], latency[2])
  end
  sampled(e.t, ARGV[first + 4])
  sampled(e.v, ARGV[first + 5])
  local told, share = rest[8], math.max(p[5], math.min(e.s, e.c))
  if math.abs(share - told) > 0.02 or (share == 1 and told < 1) or e.k ~= k or e.u ~= u or now - rest[9] >= 2 then
    e.q[1], e.q[2] = quantiles(e.t, 1)
    e.q[3], e.q[4] = quantiles(e.v, 0.25)
    number, rest[8], rest[9] = number + 1, share, now
    changed[#changed + 1], changed[#changed + 2] = number, ARGV[first]
  end
  local seen = cmsgpack.pack({e.s, e.c, e.at, e.k, e.u, e.o, e.ga, e.l, e.t.m, e.q[1], e.q[2], e.v.m, e.q[3], e.q[4], e.b})
  local kept = cmsgpack.pack({e.w, e.si, e.f, e.t.a, e.t.h, e.v.a, e.v.h, rest[8], rest[9], e.x})
  redis.call('SET', KEYS[i + 2], string.char(math.floor(#seen / 256), #seen % 256) .. seen .. kept, 'EX', DAY)
  answer[#answer + 1], answer[#answer + 2] = ARGV[first], seen
end
if #changed > 0 then
  redis.call('ZADD', KEYS[1], unpack(changed))
  redis.call('HSET', KEYS[2], 'n', number)
  redis.call('EXPIRE', KEYS[1], DAY)
  redis.call('EXPIRE', KEYS[2], DAY)
end
return {generation, number, string.format('%.17g', now), unpack(answer)}
