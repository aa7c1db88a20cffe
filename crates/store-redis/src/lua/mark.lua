-- Something to wait for, and nothing else.
-- KEYS: mark.
if redis.call('PEXPIRE', KEYS[1], '315360000000') == 0 then
  redis.call('SET', KEYS[1], '')
end
return 1
