//! `onlyonce profiles`: whose conventions can be followed, and what they are.

use std::fmt::Write as _;

use onlyonce_http::Profile;
use serde_json::{Map, Value, json};

use crate::cli::{ProfileArgs, ProfilesCommand};

/// What the command prints.
///
/// # Errors
/// When there is no such profile, or the file cannot be used.
pub(crate) fn run(command: &ProfilesCommand) -> Result<String, String> {
    match command {
        ProfilesCommand::List(args) => {
            let profiles = all(args)?;
            if args.json {
                let all: Vec<_> = profiles.iter().map(as_json).collect();
                return Ok(Value::Array(all).to_string());
            }
            let width = profiles.iter().map(|profile| profile.name.len()).max();
            let width = width.unwrap_or_default();
            let lines = profiles.iter();
            let lines = lines.map(|profile| format!("{:width$}  {}", profile.name, profile.about));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        }
        ProfilesCommand::Show { name, toml, args } => {
            let profiles = all(args)?;
            let found = profiles.iter().find(|profile| profile.name == *name);
            let profile = found.ok_or_else(|| {
                format!("there is no profile \"{name}\": `onlyonce profiles list` shows them")
            })?;
            match Profile::source(name) {
                Some(text) if *toml => Ok(as_toml(name, text)),
                None if *toml => Err(format!("\"{name}\" is in the configuration file itself")),
                _ if args.json => Ok(as_json(profile).to_string()),
                _ => Ok(as_text(profile)),
            }
        }
    }
}

/// The presets, and those of a configuration file.
fn all(args: &ProfileArgs) -> Result<Vec<Profile>, String> {
    let mut profiles: Vec<_> = Profile::presets().filter_map(Profile::preset).collect();
    if let Some(file) = &args.config {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|reason| format!("{shown} cannot be read: {reason}"))?;
        let own = Profile::parse_all(&text).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            format!("{shown} cannot be used:\n  {}", errors.join("\n  "))
        })?;
        profiles.extend(own);
    }
    Ok(profiles)
}

fn as_json(profile: &Profile) -> Value {
    let rows = profile.describe().into_iter();
    let rows = rows.map(|(name, value)| (machine_name(name), Value::String(value)));
    let rows: Map<String, Value> = rows.collect();
    let answers = profile.answers().into_iter().map(|(name, status, body)| {
        let status = status.map(|status| status.as_u16());
        (name.to_owned(), json!({ "status": status, "body": body }))
    });
    let answers: Map<String, Value> = answers.collect();
    json!({
        "name": profile.name,
        "about": profile.about,
        "follows": profile.follows,
        "notes": profile.notes,
        "says": rows,
        "answers": answers,
    })
}

/// `executed_added` of the heading `executed, added`.
fn machine_name(heading: &str) -> String {
    let words = heading.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("_")
}

/// A preset as a part of a configuration file. It has a name of its own, because those of the
/// presets are taken, and every heading says the whole of it: wherever it is pasted, it means the
/// same.
fn as_toml(name: &str, source: &str) -> String {
    let mine = format!("my-{name}");
    let headings = source.trim_end().lines().map(|line| {
        // Only headings begin with a bracket: what goes on over several lines is indented.
        if let Some(rest) = line.strip_prefix("[[") {
            format!("[[profiles.{mine}.{rest}")
        } else if let Some(rest) = line.strip_prefix('[') {
            format!("[profiles.{mine}.{rest}")
        } else {
            line.to_owned()
        }
    });
    format!(
        "# A part of a configuration file. `profile = \"{mine}\"`, above the first section or in a\n\
         # [[route]], makes use of it.\n\
         [profiles.{mine}]\n{}",
        headings.collect::<Vec<_>>().join("\n")
    )
}

fn as_text(profile: &Profile) -> String {
    let mut text = format!("{}: {}\n", profile.name, profile.about);
    // Writing to a `String` cannot fail, here and below.
    if !profile.follows.is_empty() {
        let _ = writeln!(text, "after {}", profile.follows);
    }
    text.push('\n');
    for (name, value) in profile.describe() {
        let _ = writeln!(text, "  {name:<16} {}", value.replace('`', ""));
    }
    let answers = profile.answers();
    if !answers.is_empty() {
        text.push_str("\nanswers\n");
    }
    for (name, status, body) in answers {
        let status = status.map_or_else(|| "–".to_owned(), |status| status.as_u16().to_string());
        let _ = writeln!(
            text,
            "  {name:<16} {status:<4} {}",
            body.trim().replace('\n', "")
        );
    }
    if !profile.notes.is_empty() {
        text.push_str("\nnotes\n");
    }
    for note in &profile.notes {
        let _ = writeln!(text, "  {note}");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::config::{Config, Overrides};

    const ARGS: ProfileArgs = ProfileArgs {
        json: false,
        config: None,
    };

    fn show(name: &str, toml: bool, json: bool) -> Result<String, String> {
        run(&ProfilesCommand::Show {
            name: name.to_owned(),
            toml,
            args: ProfileArgs { json, ..ARGS },
        })
    }

    #[test]
    fn every_preset_is_listed_and_shown() {
        let list = run(&ProfilesCommand::List(ARGS)).unwrap();
        for name in Profile::presets() {
            assert!(list.lines().any(|line| line.starts_with(name)), "{name}");
            assert!(show(name, false, false).unwrap().starts_with(name));
            let json: Value = serde_json::from_str(&show(name, false, true).unwrap()).unwrap();
            assert_eq!(json.get("name"), Some(&json!(name)));
        }
        assert!(show("strype", false, false).is_err());
        let json = run(&ProfilesCommand::List(ProfileArgs { json: true, ..ARGS })).unwrap();
        let json: Vec<Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(json.len(), 16);
    }

    /// Programs ask for these by name: one that follows the punctuation of a heading is a trap.
    #[test]
    fn headings_are_plain_names_in_json() {
        let json: Value = serde_json::from_str(&show("stripe", false, true).unwrap()).unwrap();
        let says = json.get("says").and_then(Value::as_object).unwrap();
        let names: Vec<_> = says.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "executed_added",
                "in_flight",
                "kept_for",
                "key",
                "methods",
                "no_key",
                "other_payload",
                "replay_added",
                "saved",
                "scope",
            ]
        );
    }

    /// Whoever begins with a preset must not have to write its headings anew first.
    #[test]
    fn every_preset_is_printed_as_a_part_of_a_configuration_that_means_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("onlyonce.toml");
        for name in Profile::presets() {
            let printed = show(name, true, false).unwrap();
            let text = format!(
                "profile = \"my-{name}\"\n[upstream]\nurls = [\"http://127.0.0.1:9\"]\n{printed}\n"
            );
            std::fs::write(&file, text).unwrap();
            let config = Config::load(Some(&file), std::iter::empty(), Overrides::default());
            assert_eq!(check(config.as_ref()).errors, [], "{name}");
            let own = Profile::preset(name).unwrap();
            let config = config.unwrap();
            let [read] = &*config.profiles else {
                panic!("{name}: {printed}");
            };
            let renamed = Profile {
                name: format!("my-{name}"),
                ..own
            };
            assert_eq!(format!("{read:?}"), format!("{renamed:?}"));
        }
    }

    #[test]
    fn a_file_s_own_profiles_are_shown_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("onlyonce.toml");
        std::fs::write(
            &file,
            "[profiles.mine]\nextends = \"stripe\"\nretention = \"2d\"\n",
        )
        .unwrap();
        let args = ProfileArgs {
            config: Some(file),
            ..ARGS
        };
        let shown = run(&ProfilesCommand::Show {
            name: "mine".to_owned(),
            toml: false,
            args,
        });
        let shown = shown.unwrap();
        assert!(
            shown.contains("2d") && shown.contains("idempotency_error"),
            "{shown}"
        );
    }
}
