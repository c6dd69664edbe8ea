#!lua
-- Resumes a suspended turn with its user's answer: record, history, first event, queue entry, due, indexes, in one step.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 queue to join (`:first` or `:last` of the pool), 3 turn, 4 context key, 5 scope, 6 task, 7 record of the turn from now on, 8 id of
--         the answer, 9 nonce, 10 prev, 11 stamp, 12 state, 13 its number in the journal, 14 how long it may be queued (ms),
--         15 deadline of the turn or '', 16 how long a repeat is answered (ms), 17 '1' = it works in its context's workspace, 18 count
--         of history items, then the items, then 1, the first event, its kind
-- DERIVES turn:<id> ctx:<ctx> task:<id> hist:<id> ev:<id> turns:* storages due suspended idx:* ch:<task>
-- RETURNS OK first number now place, storage where it is queued or '' | DUPLICATE and the same, without storage | WORKING | TERMINAL | NOT_FOUND | RETRY
-- USES    base storage side index journal
local publish, queue, turn, ctx, scope, task, record, id, nonce, prev, stamp, state, number = unpack(ARGV, 1, 13)
local turn_key, task_key, ctx_key, seen_key = P .. 'turn:' .. turn, P .. 'task:' .. task, P .. 'ctx:' .. ctx, P .. 'turn:' .. id

local seen = redis.call('HMGET', seen_key, 'f', 'n')
if seen[1] then
  return { 'DUPLICATE', seen[1], seen[2], int(now), '0', '' }
end
local t = redis.call('HMGET', task_key, 'scope', 'ctx', 'last', 'live', 'k', 'state')
if t[1] ~= scope or t[2] ~= ctx then
  return { 'NOT_FOUND' }
elseif t[5] == 't' then
  return { 'TERMINAL' }
elseif t[4] ~= turn then
  return { 'RETRY' } -- what was suspended is over
end
local c = redis.call('HMGET', ctx_key, 'turn', 'tok', 'cancel', 'at', 'sto')
local suspended = c[1] == turn and (c[2] or '') == '' and string.sub(c[4] or '', 1, 1) == 's'
if not suspended or (c[3] and c[3] ~= '') then
  return { 'WORKING' } -- another answer was first, or its end has been asked for
elseif now >= math.min(tonumber(string.sub(c[4] or '', 2)) or math.huge, tonumber(ARGV[15]) or math.huge) then
  return { 'TERMINAL' } -- it has waited too long: its end is due, although nobody has written it yet
elseif t[3] ~= prev then
  return { 'RETRY' }
end

-- Writes. None of them can fail: types are ours, the journal's last id was compared.
local storage = ARGV[17] == '1' and c[5]
local items = tonumber(ARGV[18])
local at = 19 + items
if items > 0 then
  redis.call('RPUSH', P .. 'hist:' .. task, unpack(ARGV, 19, 18 + items))
end
local first = append(task, prev, nonce, at)
redis.call('HSET', task_key, 'state', state, 'last', first, 'up', stamp, 'n', number, 'k', 'n')
redis.call('HSET', KEYS[1], side(takers(home(queue, storage))), '1')
local entry, home_queue = enqueue(queue, storage, turn, ctx)
redis.call('HSET', turn_key, 'r', record, 'e', entry, 'q', home_queue, 'since', int(now))
redis.call('HSET', ctx_key, 'at', '')
redis.call('ZREM', P .. 'suspended', turn)
redis.call('ZADD', P .. 'due', int(math.min(now + left_alone(storage), now + tonumber(ARGV[14]), tonumber(ARGV[15]) or math.huge)), ctx)
redis.call('HSET', seen_key, 'f', first, 'n', number)
redis.call('PEXPIRE', seen_key, ARGV[16])
index(scope, ctx, task, t[6], state, stamp)
announce(publish, task, prev, first, at)
return { 'OK', first, number, int(now), '0', storage or '' }
