-- Ends a turn: stores the result, frees the context and the queue entry, sets retention. All checks are the caller's.
-- f: publish, ctx, turn, task, entry, queue (stream key suffix), class, state, snapshot, last, stamp, minid,
--    keep (place of four numbers of ms in ARGV: task, context, journal, turn), history (place of a count in ARGV, then items)
local function release(f)
  local hash = P .. 'task:' .. f.task
  local items = f.history + tonumber(ARGV[f.history])
  for from = f.history + 1, items, 1000 do -- in pieces: Lua cannot unpack more than some thousand values
    redis.call('RPUSH', P .. 'hist:' .. f.task, unpack(ARGV, from, math.min(from + 999, items)))
  end
  redis.call('HSET', hash, 'last', f.last, 'state', f.state, 'up', f.stamp, 'k', f.class, 'live', '', 'snap', f.snapshot, 'snapc', f.last)
  if f.base then
    redis.call('HDEL', hash, 'base', 'basec')
  end
  if f.minid ~= '' then
    redis.call('XTRIM', P .. 'ev:' .. f.task, 'MINID', f.minid)
  end
  if f.entry ~= '' then
    redis.call('XACK', P .. f.queue, 'workers', f.entry)
    redis.call('XDEL', P .. f.queue, f.entry)
  end
  -- What is left of the turn answers a repeated submit.
  local turn = P .. 'turn:' .. f.turn
  local first = redis.call('HMGET', turn, 'f', 'n', 's')
  if first[3] then
    redis.call('ZREM', P .. 'q:' .. first[3], f.turn)
  end
  redis.call('DEL', turn)
  redis.call('HSET', turn, 'f', first[1] or '', 'n', first[2] or '')
  redis.call('PEXPIRE', turn, ARGV[f.keep + 3])
  redis.call('HSET', P .. 'ctx:' .. f.ctx, 'turn', '', 'tok', '', 'until', '0', 'cancel', '', 'at', '')
  redis.call('ZREM', P .. 'due', f.ctx)
  redis.call('ZADD', P .. 'retain', int(now + tonumber(ARGV[f.keep])), 't:' .. f.task,
    int(now + tonumber(ARGV[f.keep + 1])), 'c:' .. f.ctx, int(now + tonumber(ARGV[f.keep + 2])), 'j:' .. f.task)
end
