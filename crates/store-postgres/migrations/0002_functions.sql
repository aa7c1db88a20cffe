-- For applications in any language, inside their own transactions.
--
-- An application behind the gateway gets an execution token with the request and calls
-- onlyonce_complete in the transaction that has the effect: either both are committed or neither.
-- One without a gateway gets its token from onlyonce_begin.
--
-- Errors that the application's transaction must not survive:
--   OO001  the execution is over: another one has the key, or it was settled otherwise
--   OO002  an argument makes no sense
--   OO003  the key was completed with another answer
--
-- The functions run with the rights of their owner. Nobody else may call them until told so:
--   GRANT EXECUTE ON FUNCTION onlyonce_complete(text, integer, jsonb, bytea) TO app;

-- The store's time, without keeping it: an application's transaction may last, and nobody must
-- wait for it.
CREATE FUNCTION onlyonce_time() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT greatest(latest, given - least(ahead, greatest(given - latest, 0) / 10))
    FROM (SELECT latest, ahead, onlyonce_server_millis() + ahead AS given FROM onlyonce_clock) AS c
$$;

-- What a crash could take back must not be shown. An application may commit carelessly elsewhere;
-- the transaction that settles a key is synced before it counts.
CREATE FUNCTION onlyonce_durably() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- So much later. The longest retention that a token can say is for ever.
CREATE FUNCTION onlyonce_after(millis bigint, duration bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN duration > 9223372036854775806 - millis THEN -1 ELSE millis + duration END
$$;

CREATE FUNCTION onlyonce_has_passed(deadline bigint, now bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT deadline BETWEEN 0 AND now $$;

CREATE FUNCTION onlyonce_token(execution text, OUT id bytea, OUT fence bytea, OUT retention bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    parts text[] := regexp_match(execution, '^v1\.([0-9a-f]{64})\.([0-9a-f]{32})\.([0-9]{1,19})$');
BEGIN
    IF parts IS NULL OR parts[3]::numeric > 9223372036854775807 THEN
        RAISE EXCEPTION 'onlyonce: this is not an execution token' USING
            ERRCODE = 'OO002',
            HINT = 'Pass on the request header Onlyonce-Execution as it came, or what onlyonce_begin returned.';
    END IF;
    id := decode(parts[1], 'hex');
    fence := decode(parts[2], 'hex');
    retention := parts[3]::bigint;
END $$;

-- Headers as an object of texts and lists of texts, or as a list of [name, value], which keeps
-- the order. Returns them as they are stored.
CREATE FUNCTION onlyonce_header_lines(headers jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    pairs jsonb := '[]';
    field record;
    lines text := '';
BEGIN
    IF jsonb_typeof(headers) = 'object' THEN
        FOR field IN SELECT * FROM jsonb_each(headers) LOOP
            IF jsonb_typeof(field.value) = 'array' THEN
                SELECT pairs || coalesce(jsonb_agg(jsonb_build_array(field.key, item)), '[]')
                INTO pairs FROM jsonb_array_elements(field.value) AS item;
            ELSE
                pairs := pairs || jsonb_build_array(jsonb_build_array(field.key, field.value));
            END IF;
        END LOOP;
    ELSIF jsonb_typeof(headers) = 'array' THEN
        pairs := headers;
    ELSIF headers IS NOT NULL AND jsonb_typeof(headers) <> 'null' THEN
        RAISE EXCEPTION 'onlyonce: headers must be an object or a list of [name, value]'
            USING ERRCODE = 'OO002';
    END IF;
    FOR field IN SELECT item ->> 0 AS name, item ->> 1 AS value, item
                 FROM jsonb_array_elements(pairs) AS item LOOP
        IF jsonb_typeof(field.item) <> 'array' OR jsonb_array_length(field.item) <> 2
            OR field.name IS NULL OR field.name !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$'
            OR field.value IS NULL OR field.value ~ '[\x01-\x08\x0a-\x1f\x7f]' THEN
            RAISE EXCEPTION 'onlyonce: % is not a header line', field.item USING ERRCODE = 'OO002';
        END IF;
        lines := lines || lower(field.name) || ': '
            || encode(convert_to(field.value, 'UTF8'), 'escape') || E'\n';
    END LOOP;
    RETURN lines;
END $$;

-- The same the other way round: a list of [name, value].
CREATE FUNCTION onlyonce_header_pairs(lines text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_array(
        convert_from(decode(split_part(line, ': ', 1), 'escape'), 'UTF8'),
        convert_from(decode(substr(line, strpos(line, ': ') + 2), 'escape'), 'UTF8')
    ) ORDER BY place), '[]')
    FROM regexp_split_to_table(lines, E'\n') WITH ORDINALITY AS split (line, place)
    WHERE line <> ''
$$;

-- The row of an execution, locked until the transaction ends.
CREATE FUNCTION onlyonce_hold(wanted_id bytea, wanted_fence bytea) RETURNS onlyonce_record
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    held onlyonce_record;
BEGIN
    PERFORM onlyonce_durably();
    SELECT * INTO held FROM onlyonce_record WHERE id = wanted_id FOR UPDATE;
    IF held.id IS NULL OR held.fence <> wanted_fence THEN
        RAISE EXCEPTION 'onlyonce: this execution no longer has the key' USING
            ERRCODE = 'OO001',
            HINT = 'Roll back: another execution may have had the effect.';
    END IF;
    RETURN held;
END $$;

CREATE FUNCTION onlyonce_over(held onlyonce_record) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'onlyonce: this execution was settled as %', held.state USING
        ERRCODE = 'OO001',
        HINT = 'Roll back: another execution may have the effect.';
END $$;

-- It happened, and this is its answer. Call it in the transaction that has the effect, and answer
-- the request after the commit. The same again is harmless.
CREATE FUNCTION onlyonce_complete(execution text, status integer, headers jsonb, body bytea)
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
    IF status IS NULL OR status NOT BETWEEN 100 AND 999 THEN
        RAISE EXCEPTION 'onlyonce: % is not a status', status USING ERRCODE = 'OO002';
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

-- Nothing happened, and nothing of it will: the same request may run again.
CREATE FUNCTION onlyonce_release(execution text) RETURNS void
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
    UPDATE onlyonce_record AS r SET
        version = nextval('onlyonce_version'), state = 'released',
        deadline = onlyonce_after(now, token.retention),
        updated_at = greatest(now, held.updated_at), reason = NULL,
        unknown_since = NULL, probes = NULL, memo = ''
    WHERE r.id = token.id;
END $$;

-- Nobody knows whether it happened: reconciliation is to find out.
CREATE FUNCTION onlyonce_unknown(execution text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE
    token record;
    held onlyonce_record;
    now bigint;
BEGIN
    token := onlyonce_token(execution);
    held := onlyonce_hold(token.id, token.fence);
    IF held.state IN ('unknown', 'dead_letter') THEN
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

-- The id of a key that no gateway has seen. Parts are length-prefixed, and the secret is on both
-- sides of the inner hash.
CREATE FUNCTION onlyonce_sql_id(secret bytea, scope text, key text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(secret || sha256(
        secret || convert_to('onlyonce.sql-id.v1', 'UTF8')
        || int8send(octet_length(convert_to(scope, 'UTF8'))) || convert_to(scope, 'UTF8')
        || int8send(octet_length(convert_to(key, 'UTF8'))) || convert_to(key, 'UTF8')
    ))
$$;

-- A claim by an application without a gateway. Called in the transaction that has the effect, a
-- second caller waits for the first one's commit and then gets its answer. Called in one of its
-- own, the key is held for the lease, and unknown after it.
--
-- Decisions: execute (with an execution token), replay (with the answer), in_flight, mismatch,
-- unknown, not_replayable.
CREATE FUNCTION onlyonce_begin(
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
BEGIN
    IF scope IS NULL OR key IS NULL OR key = '' OR fingerprint IS NULL OR lease_ms <= 0
        OR retention_ms <= 0 OR octet_length(route) > 255 THEN
        RAISE EXCEPTION 'onlyonce: scope, key and fingerprint must be given, lease and retention be above zero'
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
        SELECT * INTO held FROM onlyonce_record AS r WHERE r.id = row_id FOR UPDATE;
        CONTINUE WHEN held.id IS NULL;
        now := onlyonce_time();
        is_new := held.state = 'expired'
            OR held.state IN ('completed', 'released') AND onlyonce_has_passed(held.deadline, now);
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

REVOKE EXECUTE ON FUNCTION onlyonce_complete(text, integer, jsonb, bytea) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION onlyonce_release(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION onlyonce_unknown(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION
    onlyonce_begin(text, text, bytea, interval, interval, text) FROM PUBLIC;
