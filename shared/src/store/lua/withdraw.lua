#!lua flags=allow-oom
-- Ends a task whose turn waits behind another of its context. Nothing else of the context moves.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 context key, 3.. the turn and its end (lib/withdraw.lua)
-- DERIVES wait:<ctx> waiting ctx:<ctx> turn:<id> task:<id> ev:<id> hist:<id> q:<scope> retain idx:* ch:<task>
-- RETURNS OK last now | RETRY
-- USES    base index journal wait place conclude withdraw
local publish, ctx, turn, task, prev = unpack(ARGV, 1, 5)
if not redis.call('LPOS', P .. 'wait:' .. ctx, turn) or not is_as_read(3) then
  return { 'RETRY' }
end
local last = withdraw(ctx, 3)
announce(publish, task, prev, last, (places(3)))
return { 'OK', last, int(now) }
