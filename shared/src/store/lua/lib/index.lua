-- Puts a task into the listings under its new state, at its status time.
local function index(scope, ctx, task, old, new, stamp)
  redis.call('ZADD', P .. 'idx:' .. scope, stamp, task)
  redis.call('ZADD', P .. 'idx:ctx:' .. ctx, stamp, task)
  if old and old ~= '' and old ~= new then
    redis.call('ZREM', P .. 'idx:' .. scope .. ':' .. old, task)
  end
  redis.call('ZADD', P .. 'idx:' .. scope .. ':' .. new, stamp, task)
end
