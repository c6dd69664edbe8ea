#!lua
-- Resumes a suspended turn with its user's answer: record, history, first event, queue entry, due, indexes, in one step.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 queue to join, 3 turn, 4 context key, 5 scope, 6 task, 7 record of the turn from now on, 8 id of
--         the answer, 9 nonce, 10 prev, 11 stamp, 12 state, 13 its number in the journal, 14 how long it may be queued (ms),
--         15 deadline of the turn or '', 16 how long a repeat is answered (ms), 17 count of history items, then the items, then
--         1, the first event, its kind
-- DERIVES turn:<id> ctx:<ctx> task:<id> hist:<id> ev:<id> turns:* due suspended idx:* ch:<task>
-- RETURNS OK first number now place | DUPLICATE first number now place | WORKING | TERMINAL | NOT_FOUND | RETRY
-- USES    base index journal
local publish, queue, turn, ctx, scope, task, record, id, nonce, prev, stamp, state, number = unpack(ARGV, 1, 13)
local turn_key, task_key, ctx_key, seen_key = P .. 'turn:' .. turn, P .. 'task:' .. task, P .. 'ctx:' .. ctx, P .. 'turn:' .. id

local seen = redis.call('HMGET', seen_key, 'f', 'n')
if seen[1] then
  return { 'DUPLICATE', seen[1], seen[2], int(now), '0' }
end
local t = redis.call('HMGET', task_key, 'scope', 'ctx', 'last', 'live', 'k', 'state')
if t[1] ~= scope or t[2] ~= ctx then
  return { 'NOT_FOUND' }
elseif t[5] == 't' then
  return { 'TERMINAL' }
elseif t[4] ~= turn then
  return { 'RETRY' } -- what was suspended is over
end
local c = redis.call('HMGET', ctx_key, 'turn', 'tok', 'cancel', 'at')
local suspended = c[1] == turn and (c[2] or '') == '' and string.sub(c[4] or '', 1, 1) == 's'
if not suspended or (c[3] and c[3] ~= '') then
  return { 'WORKING' } -- another answer was first, or its end has been asked for
elseif t[3] ~= prev then
  return { 'RETRY' }
end

-- Writes. None of them can fail: types are ours, the journal's last id was compared.
local items = tonumber(ARGV[17])
local at = 18 + items
if items > 0 then
  redis.call('RPUSH', P .. 'hist:' .. task, unpack(ARGV, 18, 17 + items))
end
local first = append(task, prev, nonce, at)
redis.call('HSET', task_key, 'state', state, 'last', first, 'up', stamp, 'n', number, 'k', 'n')
local entry = redis.call('XADD', P .. queue, '*', 't', turn, 'x', ctx)
redis.call('HSET', turn_key, 'r', record, 'e', entry, 'q', queue, 'since', int(now))
redis.call('HSET', ctx_key, 'at', '')
redis.call('ZREM', P .. 'suspended', turn)
redis.call('ZADD', P .. 'due', int(math.min(now + 30000, now + tonumber(ARGV[14]), tonumber(ARGV[15]) or math.huge)), ctx)
redis.call('HSET', seen_key, 'f', first, 'n', number)
redis.call('PEXPIRE', seen_key, ARGV[16])
index(scope, ctx, task, t[6], state, stamp)
announce(publish, task, prev, first, at)
return { 'OK', first, number, int(now), '0' }
