-- Answers are bounded as requests are: a hundred retries of large answers in one statement would be gigabytes.

-- As before, but it ends after 4 MiB of rows that were lost to. The ids that have no line in the answer were not
-- tried: nothing was written for them, and they may be sent again.
CREATE OR REPLACE FUNCTION onlyonce_swap(
    ids bytea[], expected bigint[], states text[], deadlines bigint[], fences bytea[],
    attempts integer[], fingerprint_algorithms text[], fingerprints bytea[], all_fields bytea[],
    all_fields_truncated boolean[], routes text[], principals bytea[], created bigint[],
    updated bigint[], reasons text[], unknown_sinces bigint[], all_probes integer[],
    response_kinds text[], response_statuses integer[], all_headers text[], all_trailers text[],
    bodies bytea[], seal_key_ids bigint[], seal_nonces bytea[], response_schemas bigint[],
    memos bytea[], written_version integer
) RETURNS TABLE (slot bigint, won bigint, present onlyonce_record)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    n record;
    answered bigint := 0;
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
        answered := answered + coalesce(octet_length(present.response_body), 0)
            + coalesce(octet_length(present.response_headers), 0)
            + coalesce(octet_length(present.response_trailers), 0)
            + coalesce(octet_length(present.memo), 0);
        EXIT WHEN answered >= 4194304;
    END LOOP;
END $$;
