-- Behind budgets.lua: lets reservations of budgets last on, those too that a restarted server lost, and says what is spent at least.
-- ARGV: purses, lease in ms; then of each purse its budgets; then of each reservation pico-USD, tokens, name. Answers Redis' time in ms.
local now, count, lease, at = time_ms(), tonumber(ARGV[1]), tonumber(ARGV[2]), 3
local purses = {}
for p = 1, count do
  purses[p] = loaded(2 * p - 1)
  local terms
  terms, at = terms_at(at)
  for _, term in ipairs(terms) do moved(purses[p], term, now) end
end
for i = at, #ARGV, 3 do
  local member = ARGV[i] .. ' ' .. ARGV[i + 1] .. ' ' .. ARGV[i + 2]
  for _, purse in ipairs(purses) do
    if redis.call('ZADD', purse.open, exact(now + lease), member) == 1 then
      put(purse, 'ru', (purse.kept.ru or 0) + tonumber(ARGV[i]))
      put(purse, 'rt', (purse.kept.rt or 0) + tonumber(ARGV[i + 1]))
    end
    redis.call('PEXPIRE', purse.open, math.ceil(lease) * 2)
  end
end
for _, purse in ipairs(purses) do
  freed(purse, now)
  stored(purse)
end
return exact(now)
