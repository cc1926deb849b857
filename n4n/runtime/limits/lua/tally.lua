-- What all routers together have spent of what is only weighed: caps of tenants at providers, daily tokens of accounts.
-- KEYS: the counters of all windows that end at one instant. ARGV: when they may go, Unix ms; then of each counter its name, what is added, and
-- what it has at least, as whoever asks was told before. Answers the counters, in that order.
local told = {}
for i = 2, #ARGV, 3 do
  local before = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0')
  local after = math.max(before, tonumber(ARGV[i + 2])) + tonumber(ARGV[i + 1])
  if after ~= before then redis.call('HSET', KEYS[1], ARGV[i], string.format('%.17g', after)) end
  told[#told + 1] = string.format('%.17g', after)
end
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIREAT', KEYS[1], ARGV[1]) end
return told
