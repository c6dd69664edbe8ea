#!lua flags=allow-oom
-- Reads up to n queue entries and leases their contexts: delivered and leased are one event. Journals nothing.
-- KEYS    1 meta
-- ARGV    1 pool, or pool and storage (lib/storage.lua), 2 worker, 3 n, 4 lease ttl (ms), 5 '1' when this call is a repeat, 6 '1' when a last attempt may be
--         taken, 7 how many own pending entries a repeat looks at, 8.. n tokens
-- DERIVES turns:* storages ctx:<ctx> turn:<id> task:<id> due
-- RETURNS TAKEN now full, then a list per turn: turn, context key, token, epoch, record, number, charged, handbacks,
--         opened, first, last, base snapshot or '', queue, cancelled, epoch before or '',
--         since when it is live, if it waited behind another, or '', its entry, scope that it counts for or ''
-- USES    base storage side run
local pool, worker, n, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local expires = int(now + ttl)
-- Leases that a restart meets before the janitor's first look at the partition must get their grace: note whose they are.
local meta = redis.call('HMGET', KEYS[1], 'run', side(pool))
local server = not meta[1] and run_id()
local out = {}
local unreadable -- an error that must not cost the turns that are leased already

local function read_turn(turn)
  return redis.call('HMGET', P .. 'turn:' .. turn, 'r', 'k', 'n', 'charged', 'handbacks', 'opened', 'f', 'e', 'q', 'since', 'ws', 's')
end

local function turn_row(turn, r, ctx, token, epoch, queue, canceled, before)
  -- A turn that has created its task, and whose first attempt begins, is all that its task has seen.
  local fresh = r[3] == '1' and not r[6]
  local t = fresh and { r[7] } or redis.call('HMGET', P .. 'task:' .. r[2], 'last', 'snap', 'base')
  out[#out + 1] = { turn, ctx, token, epoch, r[1], r[3], r[4] or '0', r[5] or '0', r[6] or '0', r[7], t[1] or '',
    t[3] or t[2] or '', queue, canceled and '1' or '', before, r[10] or '', r[8], r[12] or '' }
end

local function lease(queue, entry, turn, ctx)
  local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'turn', 'ep', 'tok', 'cancel', 'sto')
  local r = read_turn(turn)
  if c[1] ~= turn or r[8] ~= entry or r[9] ~= queue or not r[2] then
    redis.call('XACK', P .. queue, 'workers', entry)
    redis.call('XDEL', P .. queue, entry)
    return
  end
  if c[3] and c[3] ~= '' then
    return -- leased means not available, expired or not
  end
  local storage = r[11] and c[5]
  if home(queue, storage) ~= queue then -- who put it here did not know of storages: it is for others, and the janitor rings for them
    redis.call('XACK', P .. queue, 'workers', entry)
    redis.call('XDEL', P .. queue, entry)
    local moved, to = enqueue(queue, storage, turn, ctx)
    redis.call('HSET', P .. 'turn:' .. turn, 'e', moved, 'q', to)
    return
  end
  local token = ARGV[8 + #out]
  local epoch = int(math.max((tonumber(c[2]) or 0) + 1, now))
  redis.call('HSET', P .. 'ctx:' .. ctx, 'ep', epoch, 'pep', c[2] or '', 'tok', token, 'until', expires, 'wk', worker)
  redis.call('ZADD', P .. 'due', expires, ctx)
  turn_row(turn, r, ctx, token, epoch, queue, c[4] and c[4] ~= '', c[2] or '')
end

local function field(values, name)
  for i = 1, #values, 2 do
    if values[i] == name then
      return values[i + 1]
    end
  end
end

local function read(queue, count, from, visit)
  local key = P .. queue
  local got = redis.pcall('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', count, 'STREAMS', key, from)
  if got and got.err and from ~= '>' and string.find(got.err, '^NOGROUP') then
    return 0 -- nobody has ever taken from it
  end
  if got and got.err then
    -- No queue or no group. Made here, in the same step: turns of another queue may be leased already. From the beginning:
    -- a turn may have been queued before anyone listened.
    redis.pcall('XGROUP', 'CREATE', key, 'workers', '0', 'MKSTREAM')
    got = redis.pcall('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', count, 'STREAMS', key, from)
  end
  if got and got.err then
    unreadable = got
    return
  end
  local entries = got and got[1][2] or {}
  for _, entry in ipairs(entries) do
    if entry[2] then
      visit(queue, entry[1], field(entry[2], 't'), field(entry[2], 'x'))
    end
  end
  return #entries
end

local first, main, last = 'turns:' .. pool .. ':first', 'turns:' .. pool, 'turns:' .. pool .. ':last'
if ARGV[5] == '1' then
  local mine = {}
  for i = 8, 7 + n do
    mine[ARGV[i]] = true
  end
  for _, queue in ipairs({ first, main, last }) do
    read(queue, ARGV[7], '0', function(from, entry, turn, ctx)
      local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'turn', 'ep', 'tok', 'cancel', 'pep')
      if c[1] == turn and c[3] and mine[c[3]] then
        turn_row(turn, read_turn(turn), ctx, c[3], c[2], from, c[4] and c[4] ~= '', c[5] or '')
      end
    end)
  end
  if #out > 0 then
    return { 'TAKEN', int(now), '1', out }
  end
end
if meta[2] and #out < n then
  local none = ARGV[6] == '1' and read(last, 1, '>', lease) == 0
  if #out < n and read(first, n - #out, '>', lease) == 0 and none then
    redis.call('HDEL', KEYS[1], side(pool)) -- both were asked and are empty
  end
end
if #out < n then
  read(main, n - #out, '>', lease)
end
if unreadable and #out == 0 then
  return unreadable
end
if #out > 0 and server then
  redis.call('HSET', KEYS[1], 'run', server)
end
return { 'TAKEN', int(now), #out >= n and '1' or '', out }
