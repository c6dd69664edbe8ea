-- The first of the turns that wait for a context becomes its live one, in the queue of its pool and, if it works in the context's
-- workspace, of the context's storage. Returns who takes from there (lib/storage.lua), or nil.
local function promote(ctx, storage)
  local turn, facts
  repeat -- one without a record could never run
    turn = redis.call('LPOP', P .. 'wait:' .. ctx)
    if turn then
      redis.call('ZREM', P .. 'waiting', turn)
      facts = redis.call('HMGET', P .. 'turn:' .. turn, 'q', 'age', 'dl', 'ws')
    end
  until not turn or facts[1]
  note_waiting(ctx)
  if not turn then
    return nil
  end
  storage = facts[4] and storage
  local entry, queue = enqueue(facts[1], storage, turn, ctx)
  redis.call('HSET', P .. 'turn:' .. turn, 'e', entry, 'q', queue, 'since', int(now), 'place', '0')
  redis.call('HSET', P .. 'ctx:' .. ctx, 'turn', turn, 'tok', '', 'until', '0', 'cancel', '', 'at', '')
  local look = math.min(now + left_alone(storage), now + tonumber(facts[2]), tonumber(facts[3]) or math.huge)
  redis.call('ZADD', P .. 'due', int(look), ctx)
  return takers(queue)
end
