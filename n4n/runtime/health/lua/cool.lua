-- Tells every router of cooldowns, as n4n/runtime/limits/lua/sight.lua does. KEYS: what cools by when it is back. ARGV: name, ms from now, …
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
for i = 1, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], 'GT', string.format('%.17g', now + tonumber(ARGV[i + 1])), ARGV[i])
end
return #ARGV / 2
