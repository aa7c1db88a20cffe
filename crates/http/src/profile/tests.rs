//! Reading profiles: the presets, extensions, and every mistake with its line.

use super::*;

fn wrong(text: &str) -> ProfileError {
    Profile::parse(text).unwrap_err()
}

#[test]
fn every_preset_can_be_read() {
    for name in Profile::presets() {
        let text = Profile::source(name).unwrap();
        if let Err(error) = Profile::parse(text) {
            panic!("{name}.toml, {error}");
        }
    }
    assert!(Profile::preset("nobody").is_none());
}

/// A redirect may lead to what was made. A preset that forgets it makes it twice.
#[test]
fn no_preset_forgets_a_success_or_a_redirect() {
    for name in Profile::presets() {
        let statuses = Profile::preset(name).unwrap();
        let statuses = statuses.table(crate::Statuses::default());
        for status in 200..=399 {
            assert_eq!(statuses.of(status), Settle::Completed, "{name}: {status}");
        }
    }
}

#[test]
fn an_extension_changes_single_lines() {
    let text = "extends = \"stripe\"\nretention = \"7d\"\n[statuses]\n\"5xx\" = \"unknown\"\n";
    let (mine, stripe) = (
        Profile::parse(text).unwrap(),
        Profile::preset("stripe").unwrap(),
    );
    assert_eq!(mine.retention, Some(Duration::from_secs(7 * 86_400)));
    assert_eq!(mine.sources, stripe.sources);
    assert_eq!(mine.statuses.len(), stripe.statuses.len() + 1);
    assert_eq!(mine.answers(), stripe.answers());
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, line, reason) in [
        ("retentoin = \"1d\"", 1, "did you mean \"retention\"?"),
        ("\nretention = \"1\"", 2, "no time"),
        ("extends = \"strip\"", 1, "did you mean \"stripe\"?"),
        ("in_flight = \"wiat\"", 1, "did you mean \"wait\"?"),
        ("key = []", 1, "no place to look"),
        ("[[key]]\nheader = \"a\"\nquery = \"b\"", 2, "in one place"),
        ("[[key]]\nheader = \"a b\"", 2, "no header name"),
        ("[[key]]\njson = \"key\"", 2, "begins with `/`"),
        (
            "[[key]]\nheader = \"a\"\npattern = \"uuid\"",
            3,
            "is no pattern",
        ),
        (
            "[[key]]\nheader = \"a\"\nchars_max = 999",
            3,
            "from 1 to 255",
        ),
        ("scope = [\"tenant\"]", 1, "not a choice"),
        ("[statuses]\n\"700\" = \"completed\"", 2, "no status"),
        ("reuse = \"conflict\"", 1, "resource_id"),
        (
            "[answers.mismatch]\nstatus = 200\nbody = '{}'",
            2,
            "400 to 599",
        ),
        ("[answers.mismatch]\nstatus = 400", 1, "no body"),
        (
            "[answers.mismach]\nbody = '{}'",
            1,
            "did you mean \"mismatch\"?",
        ),
        (
            "[answers.mismatch]\nbody = '''\n{\n  \"m\": \"{detial}\"\n}'''",
            4,
            "`{detial}`",
        ),
        ("[answers.mismatch]\nbody = '{\"m\": }'", 2, "not JSON"),
        ("[headers.replayed]\nX = \"{nope}\"", 2, "`{nope}`"),
        (
            "[headers.replayd]\nX = \"1\"",
            1,
            "did you mean \"replayed\"?",
        ),
        (
            "retention = \"5m\"\nfirst_sent = { header = \"A\", window = \"5m\", ahead = \"1m\" }",
            1,
            "\"6m\"",
        ),
        ("a = = 1", 1, "not TOML"),
    ] {
        let error = wrong(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
}

#[test]
fn a_file_s_own_profiles_may_extend_each_other_but_not_themselves() {
    let text = "listen = \"x\"\n[profiles.a]\nextends = \"b\"\n[profiles.b]\nretention = \"1d\"\n";
    let all = Profile::parse_all(text).unwrap();
    assert_eq!(all.len(), 2);
    let day = Some(Duration::from_secs(86_400));
    assert!(all.iter().all(|profile| profile.retention == day));
    let errors = Profile::parse_all("[profiles.a]\nextends = \"a\"\n").unwrap_err();
    assert_eq!(errors[0].line, 2);
    let errors = Profile::parse_all("[profiles.stripe]\nextends = \"a\"\n").unwrap_err();
    assert!(errors[0].reason.contains("name of a preset"), "{errors:?}");
}

/// The table of `docs/profiles.md`. `ONLYONCE_UPDATE=1 cargo test` writes it anew.
#[test]
fn the_documented_table_is_that_of_the_presets() {
    const MARKS: [&str; 2] = ["<!-- presets -->\n", "<!-- /presets -->\n"];
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profiles.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).unwrap();
    let (found, after) = rest.split_once(MARKS[1]).unwrap();
    let table = describe::table();
    if std::env::var_os("ONLYONCE_UPDATE").is_some() {
        let text = [before, MARKS[0], &table, MARKS[1], after].concat();
        std::fs::write(&file, text).unwrap();
        return;
    }
    assert_eq!(found, table, "ONLYONCE_UPDATE=1 writes it anew");
}
