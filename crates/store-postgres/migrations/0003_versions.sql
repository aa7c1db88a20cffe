-- Whoever calls a function, or looks at the view for people, may have a path that leads through a
-- schema where others create operators. What a function means is looked up where it was made.
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN
        SELECT p.oid FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND p.proname LIKE 'onlyonce\_%'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path FROM CURRENT', function);
    END LOOP;
END $$;

-- Versions are drawn, not counted. After a failover to a standby that was behind, a sequence gives
-- out numbers again that somebody may still expect. Whoever writes a row, in whatever way, gives it
-- a version that no row ever had. What nextval('onlyonce_version') gives no longer matters.
--
-- It runs for every row, and setting a path would take longer than the rest: names are whole.
CREATE FUNCTION onlyonce_draw_version() RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- All 64 bits of the hash are random, unlike those of the UUID.
    NEW.version := pg_catalog.uuid_hash_extended(
        pg_catalog.gen_random_uuid(), '0'::pg_catalog.int8);
    RETURN NEW;
END $$;

CREATE TRIGGER onlyonce_draw_version BEFORE INSERT OR UPDATE ON onlyonce_record
FOR EACH ROW EXECUTE FUNCTION onlyonce_draw_version();
