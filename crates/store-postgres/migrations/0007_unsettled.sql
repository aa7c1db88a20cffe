-- Operators look at the keys that are not settled: few, among millions that are.

-- What is left of a build that broke off.
DROP INDEX CONCURRENTLY IF EXISTS onlyonce_record_unsettled;

CREATE INDEX CONCURRENTLY onlyonce_record_unsettled ON onlyonce_record (id)
    WHERE state IN ('executing', 'unknown', 'dead_letter');
