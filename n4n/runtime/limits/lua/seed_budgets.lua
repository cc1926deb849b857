-- Behind budgets.lua: what the budgets of one purse have spent at least, by the ledger. A window that is over, or that has not begun by Redis'
-- clock, is left alone. ARGV: the budgets; after them of each its window (0 for a rolling one), how many slots, and of each slot its number
-- and what is spent in it. Answers 1.
local now = time_ms()
local purse = loaded(1)
local terms, at = terms_at(1)
for _, term in ipairs(terms) do
  local window, slots = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  moved(purse, term, now)
  if term.slot_ms > 0 or window == term.window then
    for i = at + 2, at + 2 * slots, 2 do
      local slot, spent = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
      local kept = purse.slots[term.name]
      if spent > (kept[slot] or 0) and slot >= term.window - term.slots then
        kept[slot] = spent
        purse.set[term.name .. '#' .. exact(slot)] = spent
      end
    end
    put(purse, term.name .. ':k', 2)
    put(purse, term.name .. ':u', 0)
  end
  at = at + 2 + 2 * slots
end
stored(purse)
return 1
