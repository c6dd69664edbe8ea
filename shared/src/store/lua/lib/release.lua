-- Ends a turn: stores the result, frees the context and the queue entry, sets retention. All checks are the caller's.
-- f: ctx, turn, task, class, state, snapshot, last, stamp, minid, base (whether the task has one),
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
  local turn = P .. 'turn:' .. f.turn
  local r = redis.call('HMGET', turn, 'f', 'n', 's', 'e', 'q')
  if r[4] and r[4] ~= '' then
    redis.call('XACK', P .. r[5], 'workers', r[4])
    redis.call('XDEL', P .. r[5], r[4])
  end
  if r[3] then
    redis.call('ZREM', P .. 'q:' .. r[3], f.turn)
  end
  -- What is left of the turn answers a repeated submit.
  redis.call('DEL', turn)
  redis.call('HSET', turn, 'f', r[1] or '', 'n', r[2] or '')
  redis.call('PEXPIRE', turn, ARGV[f.keep + 3])
  redis.call('HSET', P .. 'ctx:' .. f.ctx, 'turn', '', 'tok', '', 'until', '0', 'cancel', '', 'at', '')
  redis.call('ZREM', P .. 'due', f.ctx)
  redis.call('ZADD', P .. 'retain', int(now + tonumber(ARGV[f.keep])), 't:' .. f.task,
    int(now + tonumber(ARGV[f.keep + 1])), 'c:' .. f.ctx, int(now + tonumber(ARGV[f.keep + 2])), 'j:' .. f.task)
end
