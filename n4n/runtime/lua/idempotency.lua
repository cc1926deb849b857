-- One execution for one idempotency key. n4n/core/idempotency.py tells the states. All steps are one script, so that whoever has claimed
-- a record has taught the server the other steps too, and they are carried out in the order in which they were sent.
-- KEYS: the record, a hash: f the request's fingerprint, o who executes it, a its sealed answer.
-- ARGV: step, owner, fingerprint, ms for which the record then lasts; for complete the sealed answer.
-- claim answers 1: it is yours, 2: somebody executes it, 3: the key is another request's; or the sealed answer.
-- The others answer 1 if the record was the owner's, or nobody's: a server that was restarted knows none any more.
local step, owner, fingerprint, ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local kept = redis.call('HMGET', KEYS[1], 'f', 'o')
local free, mine = not kept[1], kept[2] == owner
if step == 'claim' then
  if not free and kept[1] ~= fingerprint then return 3 end
  if not free and not mine then
    return redis.call('HGET', KEYS[1], 'a') or 2
  end
elseif not free and not mine then
  return 0
elseif step == 'release' then
  redis.call('DEL', KEYS[1])
  return 1
end
if step == 'complete' then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'f', fingerprint, 'a', ARGV[5])
else
  redis.call('HSET', KEYS[1], 'f', fingerprint, 'o', owner)
end
redis.call('PEXPIRE', KEYS[1], ms)
return 1
