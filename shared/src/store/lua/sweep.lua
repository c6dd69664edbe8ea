#!lua flags=allow-oom
-- The janitor's look at a partition, at most once a second cluster-wide.
-- KEYS    1 meta
-- ARGV    1 lease ttl (ms), 2 how many at the most, 3.. pools
-- DERIVES due retain turns:<pool>:first turns:<pool> turns:<pool>:last
-- RETURNS SKIP | SWEPT now grace, due context keys, retained members that are due, pools with undelivered turns
-- USES    base run
local m = redis.call('HMGET', KEYS[1], 'run', 'grace', 'swept')
if now - tonumber(m[3] or '0') < 900 then
  return { 'SKIP' }
end
local grace, run = tonumber(m[2] or '0'), run_id()
if m[1] ~= run then
  -- Another server, or the same after a restart: leases that ran out meanwhile get one more time to live.
  if m[1] then
    grace = now + tonumber(ARGV[1])
  end
  redis.call('HSET', KEYS[1], 'run', run, 'grace', int(grace))
end
redis.call('HSET', KEYS[1], 'swept', int(now))
local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', int(now), 'LIMIT', 0, ARGV[2])
local retain = redis.call('ZRANGEBYSCORE', P .. 'retain', '-inf', int(now), 'LIMIT', 0, ARGV[2])

local function undelivered(key)
  local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)
  if not newest[1] then
    return false
  end
  local groups = redis.pcall('XINFO', 'GROUPS', key)
  local delivered = '0-0'
  if not groups.err and groups[1] then
    for i = 1, #groups[1], 2 do
      if groups[1][i] == 'last-delivered-id' then
        delivered = groups[1][i + 1]
      end
    end
  end
  local a, b = string.match(newest[1][1], '(%d+)-(%d+)')
  local c, d = string.match(delivered, '(%d+)-(%d+)')
  a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  return a > c or (a == c and b > d)
end

local waiting = {}
for i = 3, #ARGV do
  local key = P .. 'turns:' .. ARGV[i]
  if undelivered(key) or undelivered(key .. ':first') or undelivered(key .. ':last') then
    waiting[#waiting + 1] = ARGV[i]
  end
end
return { 'SWEPT', int(now), int(grace), due, retain, waiting }
