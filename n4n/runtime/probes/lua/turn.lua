-- One prober's turn: it lives, it tells what it has done and spent, it asks for what seems due. n4n/core/probes/board.py does the same in Python.
-- KEYS: probers by when they are given up, tasks by when they are due (ms), who holds a task's lease, what was spent today ("purse\0prober").
-- ARGV: prober, ms until it is given up, its day (since 1970), number of purses, of tasks that ended, of claims, of grants at most; then of each
-- purse its name and what this prober spent from it (pico-USD); of each task that ended its name and in how many ms it is due again; of each claim the task, its lease
-- in ms, in how many ms it is due if nobody ever saw it, its purse, its cost and the purse's budget for a day (-1: no bound).
-- Answers {Redis' time in ms, {probers}, {wait of each claim in ms, '0': granted}, {purse, spent by all, …}}.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local text = function(number) return string.format('%.17g', number) end
local me, day_ms = ARGV[1], 86400000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
redis.call('ZADD', KEYS[1], text(now + tonumber(ARGV[2])), me)

local day = math.floor(now / day_ms)
if redis.call('HGET', KEYS[4], '@') ~= tostring(day) then
  redis.call('DEL', KEYS[4])
  redis.call('HSET', KEYS[4], '@', tostring(day))
  redis.call('PEXPIRE', KEYS[4], 2 * day_ms)
  -- once a day, what left the catalog long ago is swept
  for _, task in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now - day_ms), 'LIMIT', 0, 1000)) do
    redis.call('ZREM', KEYS[2], task)
    redis.call('HDEL', KEYS[3], task)
  end
end
local at = 8
for _ = 1, tonumber(ARGV[4]) do
  if tonumber(ARGV[3]) == day then redis.call('HSET', KEYS[4], ARGV[at] .. '\0' .. me, ARGV[at + 1]) end
  at = at + 2
end
for _ = 1, tonumber(ARGV[5]) do
  if redis.call('HGET', KEYS[3], ARGV[at]) == me then
    redis.call('HDEL', KEYS[3], ARGV[at])
    redis.call('ZADD', KEYS[2], text(now + tonumber(ARGV[at + 1])), ARGV[at])
  end
  at = at + 2
end

local spent = {}
local kept = redis.call('HGETALL', KEYS[4])
for i = 1, #kept, 2 do
  local purse = string.match(kept[i], '^(.-)%z')
  if purse then spent[purse] = (spent[purse] or 0) + tonumber(kept[i + 1]) end
end

local waits, left = {}, tonumber(ARGV[7])
for _ = 1, tonumber(ARGV[6]) do
  local task, lease, spread, purse = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local cost, budget = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  at = at + 6
  local due = tonumber(redis.call('ZSCORE', KEYS[2], task) or '')
  if not due then
    due = now + spread
    redis.call('ZADD', KEYS[2], text(due), task)
  end
  local wait = 0
  if due > now and redis.call('HGET', KEYS[3], task) ~= me then
    wait = due - now
  elseif left <= 0 then
    wait = 1  -- it is due: ask in the next turn
  elseif budget >= 0 and (spent[purse] or 0) + cost > budget then
    redis.call('HDEL', KEYS[3], task)
    due = (day + 1) * day_ms + spread
    redis.call('ZADD', KEYS[2], text(due), task)
    wait = due - now
  else
    if cost > 0 then
      spent[purse] = (spent[purse] or 0) + cost
      redis.call('HINCRBY', KEYS[4], purse .. '\0' .. me, string.format('%.0f', cost))
    end
    redis.call('ZADD', KEYS[2], text(now + lease), task)
    redis.call('HSET', KEYS[3], task, me)
    left = left - 1
  end
  waits[#waits + 1] = text(wait)
end

if #waits > 0 then  -- all of it may be rebuilt
  redis.call('PEXPIRE', KEYS[2], 2 * day_ms)
  redis.call('PEXPIRE', KEYS[3], 2 * day_ms)
end
local totals = {}
for purse, pico in pairs(spent) do
  totals[#totals + 1] = purse
  totals[#totals + 1] = string.format('%.0f', pico)
end
return {text(now), redis.call('ZRANGE', KEYS[1], 0, -1), waits, totals}
