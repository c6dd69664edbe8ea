#!lua flags=allow-oom
-- Ends a task that waits for a message and has no turn.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 task, 3 prev, 4 nonce, 5 stamp, 6 state, 7 snapshot, 8-9 how long to keep task and journal (ms),
--         10 count of history items, then the items, then count of events, then pairs (event, kind)
-- DERIVES task:<id> hist:<id> ev:<id> retain idx:* ch:<task>
-- RETURNS OK last now | RETRY
-- USES    base index journal
local publish, task, prev, nonce, stamp, state, snapshot = unpack(ARGV, 1, 7)
local task_key = P .. 'task:' .. task
local t = redis.call('HMGET', task_key, 'last', 'live', 'k', 'state', 'scope', 'ctx')
local items = tonumber(ARGV[10])
local at = 11 + items
if t[1] and t[1] ~= prev then
  local first = int(tonumber(string.match(prev, '^%d+')) + 1) .. '-' .. nonce
  if #redis.call('XRANGE', P .. 'ev:' .. task, first, first) == 1 then
    return { 'OK', first, int(now) }
  end
end
if t[1] ~= prev or t[2] ~= '' or t[3] == 't' then
  return { 'RETRY' }
end

if items > 0 then
  redis.call('RPUSH', P .. 'hist:' .. task, unpack(ARGV, 11, 10 + items))
end
local last = append(task, prev, nonce, at)
redis.call('HSET', task_key, 'last', last, 'state', state, 'up', stamp, 'k', 't', 'snap', snapshot, 'snapc', last)
index(t[5], t[6], task, t[4], state, stamp)
redis.call('ZADD', P .. 'retain', int(now + tonumber(ARGV[8])), 't:' .. task, int(now + tonumber(ARGV[9])), 'j:' .. task)
announce(publish, task, prev, last, at)
return { 'OK', last, int(now) }
