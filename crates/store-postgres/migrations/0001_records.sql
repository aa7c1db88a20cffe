-- One row per key. Times are milliseconds since 1970; -1 is the end of time, which never comes.
-- The view onlyonce_keys shows the same for people.

CREATE SEQUENCE onlyonce_version CACHE 32;

CREATE TABLE onlyonce_record (
    id                    bytea    PRIMARY KEY,   -- keyed hash of scope and key
    version               bigint   NOT NULL,      -- of this state of this row; never given twice
    state                 text     NOT NULL,
    deadline              bigint,                 -- of the state: lease, probe, expiry or purge
    fence                 bytea    NOT NULL,      -- the execution that may settle the key
    attempt               integer  NOT NULL,
    fingerprint_algorithm text     NOT NULL,
    fingerprint           bytea    NOT NULL,
    fields                bytea    NOT NULL,      -- keyed digests that explain a mismatch
    fields_truncated      boolean  NOT NULL,
    route                 text     NOT NULL,
    principal             bytea    NOT NULL,
    created_at            bigint   NOT NULL,
    updated_at            bigint   NOT NULL,
    reason                text,                   -- why the outcome is unknown, or not replayable
    unknown_since         bigint,
    probes                integer,                -- how often the upstream was asked
    response_kind         text,                   -- plain, sealed or tombstone
    response_status       integer,
    response_headers      text,                   -- "name: value" lines, other bytes as \ooo
    response_trailers     text,
    response_body         bytea,                  -- of a sealed response: the ciphertext
    seal_key_id           bigint,
    seal_nonce            bytea,
    response_schema       bigint   NOT NULL,
    memo                  bytea    NOT NULL,      -- what to ask with while the outcome is open
    record_version        integer  NOT NULL       -- of what these columns mean
) WITH (
    -- Every row is written about twice and deleted once. Vacuuming early and without pauses keeps
    -- the table at the size of what is alive.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX onlyonce_record_deadline ON onlyonce_record (deadline);

-- The hashing secret: the first one written is everybody's.
CREATE TABLE onlyonce_secret (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    secret   bytea   NOT NULL CHECK (octet_length(secret) = 32)
);

-- The latest time that was given out, and how far it is ahead of the server's clock: not zero
-- after that clock was set back, or after a failover to a server whose clock is behind.
CREATE TABLE onlyonce_clock (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    latest   bigint  NOT NULL,
    ahead    bigint  NOT NULL
) WITH (fillfactor = 10);
INSERT INTO onlyonce_clock (latest, ahead) VALUES (0, 0);

CREATE FUNCTION onlyonce_server_millis() RETURNS bigint
LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The store's time. Never goes back, and never stands still for long.
CREATE FUNCTION onlyonce_now() RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    clock onlyonce_clock;
    given bigint;
    back  bigint;
BEGIN
    SELECT * INTO STRICT clock FROM onlyonce_clock FOR UPDATE;
    given := onlyonce_server_millis() + clock.ahead;
    IF given < clock.latest THEN
        clock.ahead := clock.ahead + clock.latest - given;
        given := clock.latest;
    ELSE
        -- Being ahead is made good by running a tenth slower.
        back := least(clock.ahead, (given - clock.latest) / 10);
        clock.ahead := clock.ahead - back;
        given := given - back;
    END IF;
    UPDATE onlyonce_clock SET latest = given, ahead = clock.ahead;
    RETURN given;
END $$;

CREATE FUNCTION onlyonce_keep_secret(candidate bytea) RETURNS bytea
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO onlyonce_secret (secret) VALUES (candidate) ON CONFLICT DO NOTHING;
    RETURN (SELECT secret FROM onlyonce_secret);
END $$;

-- Conditional writes, as many as there are ids, in one statement. `expected` is NULL where no row
-- may be there, and `states` where the row is to be removed. Ids come sorted and none comes twice,
-- so that two callers lock rows in the same order. Every inner statement sees what was committed
-- before it, so a loser always learns the row it lost to.
CREATE FUNCTION onlyonce_swap(
    ids bytea[], expected bigint[], states text[], deadlines bigint[], fences bytea[],
    attempts integer[], fingerprint_algorithms text[], fingerprints bytea[], all_fields bytea[],
    all_fields_truncated boolean[], routes text[], principals bytea[], created bigint[],
    updated bigint[], reasons text[], unknown_sinces bigint[], all_probes integer[],
    response_kinds text[], response_statuses integer[], all_headers text[], all_trailers text[],
    bodies bytea[], seal_key_ids bigint[], seal_nonces bytea[], response_schemas bigint[],
    memos bytea[], written_version integer
) RETURNS TABLE (slot bigint, won bigint, present onlyonce_record)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    n record;
BEGIN
    FOR n IN
        SELECT * FROM unnest(
            ids, expected, states, deadlines, fences, attempts, fingerprint_algorithms,
            fingerprints, all_fields, all_fields_truncated, routes, principals, created, updated,
            reasons, unknown_sinces, all_probes, response_kinds, response_statuses, all_headers,
            all_trailers, bodies, seal_key_ids, seal_nonces, response_schemas,
            memos
        ) WITH ORDINALITY AS next (
            id, expected, state, deadline, fence, attempt, fingerprint_algorithm, fingerprint,
            fields, fields_truncated, route, principal, created_at, updated_at, reason,
            unknown_since, probes, response_kind, response_status, response_headers,
            response_trailers, response_body, seal_key_id, seal_nonce, response_schema, memo,
            slot
        )
    LOOP
        slot := n.slot;
        won := NULL;
        present := NULL;
        IF n.expected IS NULL THEN
            LOOP
                -- Looking first costs a claim little, and spares a retry every write and lock.
                SELECT * INTO present FROM onlyonce_record WHERE id = n.id;
                EXIT WHEN present.id IS NOT NULL;
                IF n.state IS NULL THEN
                    won := nextval('onlyonce_version');
                    EXIT;
                END IF;
                INSERT INTO onlyonce_record VALUES (
                    n.id, nextval('onlyonce_version'), n.state, n.deadline, n.fence, n.attempt,
                    n.fingerprint_algorithm, n.fingerprint, n.fields, n.fields_truncated,
                    n.route, n.principal, n.created_at, n.updated_at, n.reason,
                    n.unknown_since, n.probes, n.response_kind, n.response_status,
                    n.response_headers, n.response_trailers, n.response_body,
                    n.seal_key_id, n.seal_nonce, n.response_schema, n.memo, written_version
                ) ON CONFLICT (id) DO NOTHING RETURNING version INTO won;
                -- Whoever was faster may have removed the row by now: look again.
                EXIT WHEN won IS NOT NULL;
            END LOOP;
        ELSE
            IF n.state IS NULL THEN
                DELETE FROM onlyonce_record WHERE id = n.id AND version = n.expected
                RETURNING nextval('onlyonce_version') INTO won;
            ELSE
                UPDATE onlyonce_record SET
                    version = nextval('onlyonce_version'), state = n.state,
                    deadline = n.deadline, fence = n.fence, attempt = n.attempt,
                    fingerprint_algorithm = n.fingerprint_algorithm,
                    fingerprint = n.fingerprint, fields = n.fields,
                    fields_truncated = n.fields_truncated, route = n.route,
                    principal = n.principal, created_at = n.created_at,
                    updated_at = n.updated_at, reason = n.reason,
                    unknown_since = n.unknown_since, probes = n.probes,
                    response_kind = n.response_kind, response_status = n.response_status,
                    response_headers = n.response_headers,
                    response_trailers = n.response_trailers,
                    response_body = n.response_body, seal_key_id = n.seal_key_id,
                    seal_nonce = n.seal_nonce, response_schema = n.response_schema,
                    memo = n.memo, record_version = written_version
                WHERE id = n.id AND version = n.expected
                RETURNING version INTO won;
            END IF;
            IF won IS NULL THEN
                SELECT * INTO present FROM onlyonce_record WHERE id = n.id;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

CREATE FUNCTION onlyonce_timestamp(millis bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN millis BETWEEN 0 AND 253402300799999 THEN to_timestamp(millis / 1000.0)
        WHEN millis IS NOT NULL THEN 'infinity'::timestamptz
    END
$$;

-- For people.
CREATE VIEW onlyonce_keys AS
SELECT
    encode(id, 'hex') AS id,
    state,
    route,
    encode(principal, 'hex') AS principal,
    attempt,
    reason,
    onlyonce_timestamp(created_at) AS created_at,
    onlyonce_timestamp(updated_at) AS updated_at,
    CASE WHEN state = 'executing' THEN onlyonce_timestamp(deadline) END AS lease_until,
    CASE WHEN state = 'unknown' THEN onlyonce_timestamp(deadline) END AS reconcile_at,
    CASE WHEN state = 'completed' THEN onlyonce_timestamp(updated_at) END AS completed_at,
    CASE WHEN state IN ('completed', 'released', 'expired') THEN onlyonce_timestamp(deadline) END
        AS expires_at,
    onlyonce_timestamp(unknown_since) AS unknown_since,
    probes,
    response_kind,
    response_status,
    response_headers,
    CASE WHEN response_kind = 'plain' THEN encode(substr(response_body, 1, 1000), 'escape') END
        AS response_body_start,
    octet_length(response_body) AS response_body_bytes,
    version
FROM onlyonce_record;
