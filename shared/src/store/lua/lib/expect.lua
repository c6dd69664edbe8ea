-- Compare-and-commit for everything without a lease holder's emit: the context must be as the caller read it.
-- ARGV 2 context key, 3 turn, 4 epoch, 5 token ('' = not leased), 6 entry and queue, as one text (entries of two queues may have one id), 7 last id, 8 task, 9 '1' = only when the lease has
-- run out and no grace holds, 10 '1' when a cancel was requested: one that came since must be decided anew
-- Returns whether it is, whether turns wait behind its live one, whether that one is suspended, and the storage of the context.
local function expected()
  local c = redis.call('HMGET', P .. 'ctx:' .. ARGV[2], 'turn', 'ep', 'tok', 'until', 'cancel', 'w', 'at', 'sto')
  local r = redis.call('HMGET', P .. 'turn:' .. ARGV[3], 'e', 'q')
  local entry = (r[1] or '') .. ' ' .. (r[2] or '')
  local last = redis.call('HGET', P .. 'task:' .. ARGV[8], 'last')
  if c[1] ~= ARGV[3] or (c[2] or '') ~= ARGV[4] or (c[3] or '') ~= ARGV[5] or entry ~= ARGV[6] or last ~= ARGV[7] then
    return false
  end
  if ((c[5] or '') ~= '') ~= (ARGV[10] == '1') then
    return false
  end
  if ARGV[9] == '1' then
    local m = redis.call('HMGET', KEYS[1], 'run', 'grace')
    if tonumber(c[4] or '0') > now or tonumber(m[2] or '0') > now or m[1] ~= run_id() then
      return false
    end
  end
  return true, c[6], string.sub(c[7] or '', 1, 1) == 's', c[8]
end
