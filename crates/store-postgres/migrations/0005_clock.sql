-- Asking for the time waits for nobody.

-- As before, but for when somebody else has the row: a commit that takes long, or a person. The time is then given
-- without keeping it, and is not below the latest that was kept. Whoever has the row keeps one, or leaves the old one.
CREATE OR REPLACE FUNCTION onlyonce_now() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    clock onlyonce_clock;
    given bigint;
    back  bigint;
BEGIN
    SELECT * INTO clock FROM onlyonce_clock FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        given := onlyonce_time();
        IF given IS NULL THEN
            RAISE EXCEPTION 'onlyonce: the table onlyonce_clock has lost its row';
        END IF;
        RETURN given;
    END IF;
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
