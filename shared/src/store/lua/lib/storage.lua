-- Where a turn waits. What only the workers of one storage may take has queues of its own, `turns:<pool>@<storage>` and those with
-- the suffixes: nobody is handed what he may not run, and nobody wakes up for it. That goes for turns that work in their context's
-- workspace (field `ws` of the turn), once that is known to be on a storage (field `sto` of the context).

-- The queue of this kind for a turn that needs a storage, or (false) none.
local function home(queue, storage)
  return (string.gsub(queue, '^(turns:[^:@]+)[^:]*', '%1' .. (storage and '@' .. storage or '')))
end

-- Those who take from a queue, and their bell: <pool>, or <pool>@<storage>.
local function takers(queue)
  return string.match(queue, '^turns:([^:]+)')
end

-- Queues a turn where those who may take it find it. Returns entry and queue.
local function enqueue(queue, storage, turn, ctx)
  local to = home(queue, storage)
  if storage then
    redis.call('ZADD', P .. 'storages', int(now), takers(to))
  end
  return redis.call('XADD', P .. to, '*', 't', turn, 'x', ctx), to
end

-- How long it is left alone there at first (ms): that a storage has no worker should not go unnoticed for long.
local function left_alone(storage)
  return storage and 1000 or 30000
end
