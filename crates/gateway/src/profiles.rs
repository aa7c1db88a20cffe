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
                Some(text) if *toml => Ok(text.trim_end().to_owned()),
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
    let rows = rows.map(|(name, value)| (name.replace([' ', ','], "_"), Value::String(value)));
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
            assert!(Profile::parse(&show(name, true, false).unwrap()).is_ok());
            let json: Value = serde_json::from_str(&show(name, false, true).unwrap()).unwrap();
            assert_eq!(json.get("name"), Some(&json!(name)));
        }
        assert!(show("strype", false, false).is_err());
        let json = run(&ProfilesCommand::List(ProfileArgs { json: true, ..ARGS })).unwrap();
        let json: Vec<Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(json.len(), 16);
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
