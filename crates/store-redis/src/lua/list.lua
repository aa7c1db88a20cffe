-- The next rows of one shard, in the order of their ids.
-- KEYS: ids. ARGV: where to start, how many to look at, what a row's key starts with, enough bytes,
--       '' or 'kept' for those only that the server may not drop, enough rows.
-- Answers 1 if these are the last or 0, the last id that was looked at or '', then id and row (nil if
-- it is gone), flat.
-- Whether the server may drop a row. A user who may not ask is shown all of them.
local function may_drop(key)
  local left = redis.pcall('PTTL', key)
  return type(left) == 'number' and left >= 0
end
-- A write that changes nothing: a server that is no longer the primary refuses it.
redis.call('ZREM', KEYS[1], '')
local ids = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local last = (#ids < tonumber(ARGV[2])) and 1 or 0
local answer, bytes = { last, ids[#ids] or '' }, 0
for i, id in ipairs(ids) do
  local key = ARGV[3] .. id
  if ARGV[5] == '' or not may_drop(key) then
    local row = redis.call('GET', key)
    answer[#answer + 1] = id
    answer[#answer + 1] = row
    bytes = bytes + (row and #row or 0)
    local enough = bytes >= tonumber(ARGV[4]) or #answer >= 2 + 2 * tonumber(ARGV[6])
    if enough and i < #ids then
      answer[1], answer[2] = 0, id
      break
    end
  end
end
return answer
