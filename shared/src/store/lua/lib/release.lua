-- Ends the live turn of a context: frees the queue entry and the context, which the first of the turns that wait has at once.
-- Returns who takes that one or ''. All checks are the caller's.
-- f: what lib/conclude.lua wants, and ctx, minid, base (whether the task has one), waits (whether the context says that turns wait), storage (of
-- the context, or false)
local function release(f)
  conclude(f)
  if f.base then
    redis.call('HDEL', P .. 'task:' .. f.task, 'base', 'basec')
  end
  if f.minid ~= '' then
    redis.call('XTRIM', P .. 'ev:' .. f.task, 'MINID', f.minid)
  end
  local entry, queue = f.place[2], f.place[3]
  if entry and entry ~= '' then
    redis.call('XACK', P .. queue, 'workers', entry)
    redis.call('XDEL', P .. queue, entry)
  end
  local retain = { int(now + tonumber(ARGV[f.keep])), 't:' .. f.task, int(now + tonumber(ARGV[f.keep + 2])), 'j:' .. f.task }
  local bell = f.waits and promote(f.ctx, f.storage)
  if not bell then
    redis.call('HSET', P .. 'ctx:' .. f.ctx, 'turn', '', 'tok', '', 'until', '0', 'cancel', '', 'at', '')
    redis.call('ZREM', P .. 'due', f.ctx)
    retain[5], retain[6] = int(now + tonumber(ARGV[f.keep + 1])), 'c:' .. f.ctx
  end
  redis.call('ZADD', P .. 'retain', unpack(retain))
  return bell or ''
end
