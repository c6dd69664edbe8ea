#!lua flags=allow-oom
-- The janitor's look at a partition, at most once a second cluster-wide.
-- KEYS    1 meta
-- ARGV    1 lease ttl (ms), 2 how many at the most, 3 ms of silence after which a consumer that holds nothing is forgotten,
--         4 '1' when this goes on with the look before, whose batch was full, 5.. pools
-- DERIVES due retain turns:* storages
-- RETURNS SKIP | SWEPT now grace restarted, due context keys, retained members that are due, who has undelivered turns to take (lib/storage.lua)
-- USES    base run queue side
local m = redis.call('HMGET', KEYS[1], 'run', 'grace', 'swept', 'cleaned')
local age = now - tonumber(m[3] or '0')
if ARGV[4] ~= '1' and age >= 0 and age < 900 then -- a stamp from the future is of a clock that was put back
  return { 'SKIP' }
end
local grace, run = tonumber(m[2] or '0'), run_id()
local restarted = m[1] and m[1] ~= run
if m[1] ~= run then
  -- Another server, or the same after a restart: leases that ran out meanwhile get one more time to live.
  if restarted then
    grace = now + tonumber(ARGV[1])
  end
  redis.call('HSET', KEYS[1], 'run', run, 'grace', int(grace))
end
redis.call('HSET', KEYS[1], 'swept', int(now))
local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', int(now), 'LIMIT', 0, ARGV[2])
local retain = redis.call('ZRANGEBYSCORE', P .. 'retain', '-inf', int(now), 'LIMIT', 0, ARGV[2])

local function undelivered(key)
  local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)
  return newest[1] ~= nil and comes_after(newest[1][1], delivered(key))
end

-- Every worker that ever took leaves its name in the groups. One that still lives is there again after its next take.
local function clean(key)
  local consumers = redis.pcall('XINFO', 'CONSUMERS', key, 'workers')
  for _, consumer in ipairs(consumers.err and {} or consumers) do
    local facts = {}
    for i = 1, #consumer, 2 do
      facts[consumer[i]] = consumer[i + 1]
    end
    if facts.pending == 0 and facts.idle >= tonumber(ARGV[3]) then
      redis.call('XGROUP', 'DELCONSUMER', key, 'workers', facts.name)
    end
  end
end

local waiting = {}
local cleaning = math.abs(now - tonumber(m[4] or '0')) >= 3600000
local function look(takers)
  local key = P .. 'turns:' .. takers
  local besides = undelivered(key .. ':first') or undelivered(key .. ':last')
  if besides then
    redis.call('HSET', KEYS[1], side(takers), '1')
  end
  if besides or undelivered(key) then
    waiting[#waiting + 1] = takers
  end
  return key
end
for i = 5, #ARGV do
  local key = look(ARGV[i])
  if cleaning then
    clean(key)
    clean(key .. ':first')
    clean(key .. ':last')
  end
end
-- Storages come and go: their queues are there as long as turns are in them.
for _, takers in ipairs(redis.call('ZRANGE', P .. 'storages', 0, -1)) do
  local key = look(takers)
  local turns = redis.call('XLEN', key) + redis.call('XLEN', key .. ':first') + redis.call('XLEN', key .. ':last')
  if turns == 0 then
    redis.call('DEL', key, key .. ':first', key .. ':last')
    redis.call('ZREM', P .. 'storages', takers)
    redis.call('HDEL', KEYS[1], side(takers))
  end
end
if cleaning then
  redis.call('HSET', KEYS[1], 'cleaned', int(now))
end
return { 'SWEPT', int(now), int(grace), restarted and '1' or '', due, retain, waiting }
