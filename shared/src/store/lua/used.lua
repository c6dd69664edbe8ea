#!lua flags=allow-oom
-- Counts what the tasks of a principal have in the artifact store, and refuses what is more than it may have.
-- KEYS    1 meta
-- ARGV    1 'use' | 'free', 2 principal, 3 task, 4 bytes of the task from now on (use), 5 the most of all its tasks (use),
--         6 epoch of the run (use)
-- DERIVES used:<principal>
-- RETURNS USED bytes | OVER bytes | LATE | FREED bytes
-- USES    base
local key, task = P .. 'used:' .. ARGV[2], ARGV[3]
local known = redis.call('HMGET', key, task, 'sum')
local epoch, had = string.match(known[1] or '', '^(%d+) (%d+)$')
had = tonumber(had or '0')
local others = tonumber(known[2] or '0') - had
if ARGV[1] == 'use' then
  local bytes = tonumber(ARGV[4])
  if tonumber(epoch or '0') > tonumber(ARGV[6]) then
    return { 'LATE' } -- a later run counts for the task
  elseif bytes > had and others + bytes > tonumber(ARGV[5]) then
    return { 'OVER', int(others + had) }
  end
  redis.call('HSET', key, task, ARGV[6] .. ' ' .. ARGV[4], 'sum', int(others + bytes))
  return { 'USED', int(others + bytes) }
end
if known[1] then
  redis.call('HSET', key, task, '', 'sum', int(others)) -- both or neither: a repeat finds nothing to take away
  redis.call('HDEL', key, task)
end
if others <= 0 and redis.call('HLEN', key) == 1 then
  redis.call('DEL', key)
end
return { 'FREED', int(others) }
