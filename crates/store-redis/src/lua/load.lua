-- The row, once what it is read from can be waited for.
-- KEYS: row, mark.
-- PEXPIRE works in a full memory too; in ten years, so that the mark stays.
if redis.call('PEXPIRE', KEYS[2], '315360000000') == 0 then
  redis.call('SET', KEYS[2], '')
end
return redis.call('GET', KEYS[1])
