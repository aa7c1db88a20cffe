-- Writes or removes a row if it is at the expected version.
-- KEYS: row, deadlines, ids; with `wait` also a mark.
-- ARGV: expected version or '', new version and record or '' to remove, id,
--       deadline or '', in how many ms the server may drop the row or ''.
-- Answers 1, or the row that is there instead.
local version = redis.call('GETRANGE', KEYS[1], 0, 7)
-- A row too short for a version is one too: of version 0, under which it can be removed.
if #version < 8 and (version ~= '' or redis.call('EXISTS', KEYS[1]) == 1) then
  version = string.rep('\0', 8)
end
if version ~= ARGV[1] then
  -- Something to wait for: whoever is shown this row must find it again after a failover.
  -- PEXPIRE works in a full memory too; in ten years, so that the mark stays.
  if KEYS[4] and redis.call('PEXPIRE', KEYS[4], '315360000000') == 0 then
    redis.call('SET', KEYS[4], '')
  end
  -- GETEX counts as a write, so a server that is no longer the primary refuses it.
  return redis.call('GETEX', KEYS[1])
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[3])
  redis.call('ZREM', KEYS[3], ARGV[3])
  return 1
end
-- The row last: an index entry without a row is harmless, a row without one is stuck.
if ARGV[1] == '' then
  redis.call('ZADD', KEYS[3], 0, ARGV[3])
  -- So that it is there when the row is asked for in a full memory.
  if KEYS[4] then redis.call('SET', KEYS[4], '', 'NX') end
end
if ARGV[4] == '' then
  redis.call('ZREM', KEYS[2], ARGV[3])
else
  redis.call('ZADD', KEYS[2], ARGV[4], ARGV[3])
end
if ARGV[5] == '' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  -- From now on, not at a time: this server's clock may differ from the one that decides.
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[5])
end
return 1
