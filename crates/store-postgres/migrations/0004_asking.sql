-- What asks, and changes nothing, locks nothing; what is not given is refused; what is in doubt stays so.

-- As before, but for the statuses: one below 200 is no answer.
CREATE OR REPLACE FUNCTION onlyonce_complete(execution text, status integer, headers jsonb, body bytea)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
#variable_conflict use_variable
DECLARE
    token record;
    held onlyonce_record;
    lines text := onlyonce_header_lines(headers);
    content bytea := coalesce(body, '');
    now bigint;
BEGIN
    IF status IS NULL OR status NOT BETWEEN 200 AND 999 THEN
        RAISE EXCEPTION 'onlyonce: % is not the status of an answer', status USING ERRCODE = 'OO002';
    END IF;
    token := onlyonce_token(execution);
    held := onlyonce_hold(token.id, token.fence);
    IF held.state = 'completed' THEN
        IF (held.response_kind, held.response_status, held.response_headers, held.response_trailers,
            held.response_body) IS NOT DISTINCT FROM ('plain', status, lines, '', content) THEN
            RETURN;
        END IF;
        RAISE EXCEPTION 'onlyonce: the key was completed with another answer' USING
            ERRCODE = 'OO003', HINT = 'Roll back: the effect has happened already.';
    END IF;
    IF held.state NOT IN ('executing', 'unknown', 'dead_letter') THEN
        PERFORM onlyonce_over(held);
    END IF;
    now := onlyonce_time();
    UPDATE onlyonce_record AS r SET
        version = nextval('onlyonce_version'), state = 'completed',
        deadline = onlyonce_after(now, token.retention),
        updated_at = greatest(now, held.updated_at), reason = NULL,
        unknown_since = NULL, probes = NULL, response_kind = 'plain', response_status = status,
        response_headers = lines, response_trailers = '', response_body = content,
        seal_key_id = NULL, seal_nonce = NULL, memo = ''
    WHERE r.id = token.id;
END $$;

-- As before, but for lease, retention and route, which must be given, and for when the row is locked.
CREATE OR REPLACE FUNCTION onlyonce_begin(
    scope text, key text, fingerprint bytea, lease interval DEFAULT '15 seconds',
    retention interval DEFAULT '24 hours', route text DEFAULT 'sql',
    OUT decision text, OUT execution text, OUT status integer, OUT headers jsonb, OUT body bytea
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
#variable_conflict use_variable
DECLARE
    secret bytea;
    row_id bytea;
    digest bytea := sha256(fingerprint);
    new_fence bytea := uuid_send(gen_random_uuid());
    lease_ms bigint := floor(extract(epoch FROM lease) * 1000);
    retention_ms bigint := floor(extract(epoch FROM retention) * 1000);
    now bigint;
    held onlyonce_record;
    is_new boolean;
    is_locked boolean := false;
BEGIN
    IF scope IS NULL OR key IS NULL OR key = '' OR fingerprint IS NULL
        OR coalesce(lease_ms, 0) <= 0 OR coalesce(retention_ms, 0) <= 0
        OR route IS NULL OR octet_length(route) > 255 THEN
        RAISE EXCEPTION 'onlyonce: scope, key, fingerprint and route must be given, lease and retention be above zero'
            USING ERRCODE = 'OO002';
    END IF;
    PERFORM onlyonce_durably();
    SELECT s.secret INTO secret FROM onlyonce_secret AS s;
    IF secret IS NULL THEN
        secret := onlyonce_keep_secret(
            uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    END IF;
    row_id := onlyonce_sql_id(secret, scope, key);
    LOOP
        now := onlyonce_time();
        INSERT INTO onlyonce_record VALUES (
            row_id, nextval('onlyonce_version'), 'executing', onlyonce_after(now, lease_ms),
            new_fence, 1, 'raw', digest, '', false, route,
            substr(sha256(secret || convert_to('principal', 'UTF8') || convert_to(scope, 'UTF8')), 1, 8),
            now, now, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, '', 1
        ) ON CONFLICT (id) DO NOTHING;
        IF FOUND THEN
            -- It may have waited for somebody who gave up: the lease begins now.
            IF onlyonce_time() - now > 1000 THEN
                now := onlyonce_time();
                UPDATE onlyonce_record AS r SET
                    deadline = onlyonce_after(now, lease_ms), created_at = now, updated_at = now
                WHERE r.id = row_id;
            END IF;
            decision := 'execute';
            EXIT;
        END IF;
        IF is_locked THEN
            SELECT * INTO held FROM onlyonce_record AS r WHERE r.id = row_id FOR UPDATE;
        ELSE
            SELECT * INTO held FROM onlyonce_record AS r WHERE r.id = row_id;
        END IF;
        CONTINUE WHEN held.id IS NULL;
        now := onlyonce_time();
        is_new := held.state = 'expired'
            OR held.state IN ('completed', 'released') AND onlyonce_has_passed(held.deadline, now);
        -- Only a change needs the row for itself. Whoever asks and is told to wait must not make
        -- the one wait that is at work: it could not complete while the asking transaction lasts.
        IF NOT is_locked AND (is_new OR held.state = 'released'
            OR held.state = 'executing' AND onlyonce_has_passed(held.deadline, now)) THEN
            is_locked := true;
            CONTINUE;
        END IF;
        IF NOT is_new AND (held.fingerprint_algorithm <> 'raw' OR held.fingerprint <> digest) THEN
            decision := 'mismatch';
        ELSIF is_new OR held.state = 'released' THEN
            UPDATE onlyonce_record AS r SET
                version = nextval('onlyonce_version'), state = 'executing',
                deadline = onlyonce_after(now, lease_ms), fence = new_fence,
                attempt = CASE WHEN is_new THEN 1 ELSE least(held.attempt + 1, 65535) END,
                fingerprint_algorithm = 'raw', fingerprint = digest, fields = '',
                fields_truncated = false, route = onlyonce_begin.route,
                created_at = CASE WHEN is_new THEN now ELSE held.created_at END,
                updated_at = greatest(now, held.updated_at), reason = NULL, unknown_since = NULL, probes = NULL, response_kind = NULL,
                response_status = NULL, response_headers = NULL, response_trailers = NULL,
                response_body = NULL, seal_key_id = NULL, seal_nonce = NULL, memo = ''
            WHERE r.id = row_id;
            decision := 'execute';
        ELSIF held.state = 'executing' AND onlyonce_has_passed(held.deadline, now) THEN
            UPDATE onlyonce_record AS r SET
                version = nextval('onlyonce_version'), state = 'unknown', deadline = now,
                updated_at = now, reason = 'lease_expired', unknown_since = now, probes = 0
            WHERE r.id = row_id;
            decision := 'unknown';
        ELSIF held.state = 'executing' THEN
            decision := 'in_flight';
        ELSIF held.state = 'completed' AND held.response_kind = 'plain' THEN
            decision := 'replay';
            status := held.response_status;
            headers := onlyonce_header_pairs(held.response_headers);
            body := held.response_body;
        ELSIF held.state = 'completed' THEN
            decision := 'not_replayable';
        ELSE
            decision := 'unknown';
        END IF;
        EXIT;
    END LOOP;
    IF decision = 'execute' THEN
        execution := 'v1.' || encode(row_id, 'hex') || '.' || encode(new_fence, 'hex') || '.'
            || retention_ms;
    END IF;
END $$;

-- As before, but for a key that runs again though nobody knows how its earlier attempt ended.
CREATE OR REPLACE FUNCTION onlyonce_release(execution text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE
    token record;
    held onlyonce_record;
    now bigint;
BEGIN
    token := onlyonce_token(execution);
    held := onlyonce_hold(token.id, token.fence);
    IF held.state = 'released' THEN
        RETURN;
    END IF;
    IF held.state NOT IN ('executing', 'unknown', 'dead_letter') THEN
        PERFORM onlyonce_over(held);
    END IF;
    now := onlyonce_time();
    -- An earlier attempt is in doubt, and that this one did nothing says nothing about it.
    IF held.state = 'executing' AND held.reason IS NOT NULL THEN
        UPDATE onlyonce_record AS r SET
            version = nextval('onlyonce_version'), state = 'unknown', deadline = now,
            updated_at = greatest(now, held.updated_at), probes = 0
        WHERE r.id = token.id;
        RETURN;
    END IF;
    IF held.state <> 'executing' AND held.attempt > 1 THEN
        RETURN;
    END IF;
    UPDATE onlyonce_record AS r SET
        version = nextval('onlyonce_version'), state = 'released',
        deadline = onlyonce_after(now, token.retention),
        updated_at = greatest(now, held.updated_at), reason = NULL,
        unknown_since = NULL, probes = NULL, memo = ''
    WHERE r.id = token.id;
END $$;

-- As before, but for a key that somebody presumed unknown already.
CREATE OR REPLACE FUNCTION onlyonce_unknown(execution text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE
    token record;
    held onlyonce_record;
    now bigint;
BEGIN
    token := onlyonce_token(execution);
    held := onlyonce_hold(token.id, token.fence);
    -- What somebody presumed meanwhile, the application says itself: it stands, whatever its answer's
    -- status says.
    IF held.state IN ('unknown', 'dead_letter') THEN
        UPDATE onlyonce_record AS r SET
            version = nextval('onlyonce_version'), reason = 'handler_said_so',
            updated_at = greatest(onlyonce_time(), held.updated_at)
        WHERE r.id = token.id AND r.reason IS DISTINCT FROM 'handler_said_so';
        RETURN;
    END IF;
    IF held.state <> 'executing' THEN
        PERFORM onlyonce_over(held);
    END IF;
    now := onlyonce_time();
    UPDATE onlyonce_record AS r SET
        version = nextval('onlyonce_version'), state = 'unknown', deadline = now,
        updated_at = greatest(now, held.updated_at), reason = 'handler_said_so',
        unknown_since = now, probes = 0
    WHERE r.id = token.id;
END $$;

COMMENT ON COLUMN onlyonce_record.reason IS
    'why the outcome is unknown, or not replayable; while executing: why that of an earlier attempt is';
