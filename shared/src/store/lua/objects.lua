#!lua flags=allow-oom
-- Notes a task before its first object is written, hands out noted ones that are gone, forgets one whose objects are deleted.
-- KEYS    1 meta
-- ARGV    1 'note' | 'gone' | 'done', 2 task (note, done) or how many at the most (gone), 3 when it is looked at next (note), how
--         long whoever asks has for them (gone) (ms), or what was answered to that (done), 4 how long a task that is there is left alone (gone) (ms),
--         or the principal for whom they are counted, or '' (note)
-- DERIVES objects owners task:<id>
-- RETURNS NOTED | GONE claim tasks principals | DONE | KEPT
-- USES    base
local key, owners = P .. 'objects', P .. 'owners'
if ARGV[1] == 'note' then
  if ARGV[4] ~= '' then
    redis.call('HSET', owners, ARGV[2], ARGV[4])
  end
  redis.call('ZADD', key, int(now + tonumber(ARGV[3])), ARGV[2])
  return { 'NOTED' }
end
if ARGV[1] == 'gone' then
  local claim, gone, whose = int(now + tonumber(ARGV[3])), {}, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', int(now), 'LIMIT', 0, ARGV[2])) do
    if redis.call('EXISTS', P .. 'task:' .. id) == 1 then
      redis.call('ZADD', key, int(now + tonumber(ARGV[4])), id)
    else
      redis.call('ZADD', key, claim, id) -- due again unless its objects are deleted by then
      gone[#gone + 1] = id
      whose[#gone] = redis.call('HGET', owners, id) or ''
    end
  end
  return { 'GONE', claim, gone, whose }
end
local score = redis.call('ZSCORE', key, ARGV[2])
if score and tonumber(score) ~= tonumber(ARGV[3]) then
  return { 'KEPT' } -- noted since: somebody may have written another
end
redis.call('HDEL', owners, ARGV[2])
redis.call('ZREM', key, ARGV[2])
return { 'DONE' }
