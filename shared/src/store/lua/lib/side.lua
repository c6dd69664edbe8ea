-- The queues `:first` and `:last` are empty nearly always: nobody reads them unless this field of the meta key says that they may hold turns.
-- Set before such a turn is queued, and by the janitor's look, for processes that do not set it; deleted by whoever found both empty.
local function side(takers)
  return 'side:' .. takers
end
