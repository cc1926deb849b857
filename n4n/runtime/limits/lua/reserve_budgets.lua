-- Behind budgets.lua and `limits`, which is reserve.lua: reserves of budgets while something is left of every hard one, and of all else.
-- ARGV: the three of reserve.lua, purses, pico-USD, tokens, lease in ms; then of each purse its budgets. Where a budget has nothing left the
-- answer is reserve.lua's refusal with whose, which budget as -10 and less, and how long; behind either, of each budget what is spent,
-- reserved, its window, 1 where its spending is known.
local now, count, usd, tokens, lease = time_ms(), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local at, purses, all, whose, short, longest = 8, {}, {}, 0, 0, -1
for p = 1, count do
  local purse = loaded(#KEYS - 2 * (count - p) - 1)
  purses[p] = purse
  freed(purse, now)
  purse.terms, at = terms_at(at)
  for n, term in ipairs(purse.terms) do
    moved(purse, term, now)
    leveled(purse, term, now)
    all[#all + 1] = term
    if not term.soft then
      local left = term.amount - term.spent - term.reserved
      if not term.known then left = math.min(left, math.floor(term.amount * unknown_share) - term.unseeded - term.reserved) end
      if left <= 0 and term.wait > longest then whose, short, longest = p, -9 - #all, term.wait end
    end
  end
end
local answer
if whose == 0 then
  answer = limits(limits_keys(count), {ARGV[1], ARGV[2], ARGV[3]})
  if struct.unpack('<d', answer, #ARGV[2] + 1) == 0 then
    local member = ARGV[5] .. ' ' .. ARGV[6] .. ' ' .. ARGV[2]
    for _, purse in ipairs(purses) do
      redis.call('ZADD', purse.open, exact(now + lease), member)
      redis.call('PEXPIRE', purse.open, math.ceil(lease) * 2)
      if usd > 0 then put(purse, 'ru', (purse.kept.ru or 0) + usd) end
      if tokens > 0 then put(purse, 'rt', (purse.kept.rt or 0) + tokens) end
      for _, term in ipairs(purse.terms) do term.reserved = term.reserved + (term.unit == 0 and usd or tokens) end
    end
  end
else
  local subjects, read = (#KEYS - 2 * count) / 3, 1
  local blank = {}
  for s = 1, subjects do
    local buckets = struct.unpack('<d', ARGV[1], read)
    read = read + 32 + 25 * buckets
    for i = 1, 2 + buckets do blank[#blank + 1] = 0 end
  end
  answer = ARGV[2] .. struct.pack('<' .. string.rep('d', 4 + #blank), whose, short, longest, now, unpack(blank))
end
for _, purse in ipairs(purses) do stored(purse) end
local told = {}
for _, term in ipairs(all) do
  told[#told + 1] = struct.pack('<dddd', term.spent, term.reserved, term.window, term.known and 1 or 0)
end
return answer .. table.concat(told)
