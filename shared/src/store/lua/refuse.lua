#!lua
-- Stores a task that is born FAILED and never ran.
-- KEYS    1 meta
-- ARGV    1 scope, 2 context key, 3 context id, 4 task, 5 nonce, 6 stamp, 7 state, 8 snapshot, 9 event, 10 keep (ms),
--         11 user message
-- DERIVES task:<id> hist:<id> ev:<id> idx:* retain
-- RETURNS OK first now | DUPLICATE first now
-- USES    base index
local scope, ctx, context_id, task, nonce, stamp, state, snapshot, event, keep, message = unpack(ARGV)
local task_key, id = P .. 'task:' .. task, '1-' .. nonce
local last = redis.call('HGET', task_key, 'last')
if last then
  return { 'DUPLICATE', last, int(now) }
end
redis.call('RPUSH', P .. 'hist:' .. task, message)
redis.call('XADD', P .. 'ev:' .. task, id, 'e', event, 'k', '1.t')
redis.call('HSET', task_key, 'scope', scope, 'ctx', ctx, 'cid', context_id, 'state', state, 'last', id, 'cr', stamp,
  'up', stamp, 'n', '1', 'live', '', 'k', 't', 'snap', snapshot, 'snapc', id)
index(scope, ctx, task, '', state, stamp)
redis.call('ZADD', P .. 'retain', int(now + keep), 't:' .. task)
return { 'OK', id, int(now) }
