-- The first of the turns that wait for a context becomes its live one, in the queue of its pool. Returns the pool, or nil.
local function promote(ctx)
  local turn, facts
  repeat -- one without a record could never run
    turn = redis.call('LPOP', P .. 'wait:' .. ctx)
    if turn then
      redis.call('ZREM', P .. 'waiting', turn)
      facts = redis.call('HMGET', P .. 'turn:' .. turn, 'q', 'age', 'dl')
    end
  until not turn or facts[1]
  note_waiting(ctx)
  if not turn then
    return nil
  end
  local entry = redis.call('XADD', P .. facts[1], '*', 't', turn, 'x', ctx)
  redis.call('HSET', P .. 'turn:' .. turn, 'e', entry, 'since', int(now), 'place', '0')
  redis.call('HSET', P .. 'ctx:' .. ctx, 'turn', turn, 'tok', '', 'until', '0', 'cancel', '', 'at', '')
  local look = math.min(now + 30000, now + tonumber(facts[2]), tonumber(facts[3]) or math.huge)
  redis.call('ZADD', P .. 'due', int(look), ctx)
  return string.match(facts[1], '^turns:(.+)$')
end
