-- Behind budgets.lua and `limits`, which is settle.lua: what was reserved of budgets is free, what was spent counts, by whoever reserved, once.
-- ARGV: the three of settle.lua, purses, what was reserved and what is spent of pico-USD and tokens; then of each purse its budgets, and in
-- a word in which window each was reserved. Answers as settle.lua.
local now, count, at = time_ms(), tonumber(ARGV[4]), 9
local member = ARGV[5] .. ' ' .. ARGV[6] .. ' ' .. ARGV[2]
local spent = {[0] = tonumber(ARGV[7]), [1] = tonumber(ARGV[8])}
for p = 1, count do
  local purse = loaded(#KEYS - 2 * (count - p) - 1)
  freed(purse, now)
  if redis.call('ZREM', purse.open, member) == 1 then
    put(purse, 'ru', math.max(0, (purse.kept.ru or 0) - tonumber(ARGV[5])))
    put(purse, 'rt', math.max(0, (purse.kept.rt or 0) - tonumber(ARGV[6])))
  end
  local terms
  terms, at = terms_at(at)
  local windows = words_of(ARGV[at])
  for n, term in ipairs(terms) do
    moved(purse, term, now)
    if windows[n] then booked(purse, term, tonumber(windows[n]), spent[term.unit], now) end
  end
  at = at + 1
  stored(purse)
end
return limits(limits_keys(count), {ARGV[1], ARGV[2], ARGV[3]})
