//! The default file, the environment, the flags, and the refusals of `tests/fixtures/config`.

use std::collections::BTreeSet;

use super::*;
use crate::check::check;

fn load(text: &str) -> Result<Config, Vec<Finding>> {
    Config::from_text(text, std::iter::empty(), Overrides::default())
}

fn with(text: &str, variables: &[(&str, &str)], overrides: Overrides) -> Result<Config, String> {
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    let config = Config::from_text(text, variables, overrides);
    config.map_err(|errors| ConfigErrors::new(None, errors).to_string())
}

/// Collects the keys that a configuration has, by section.
#[derive(Default)]
struct Keys {
    section: &'static str,
    keys: BTreeSet<(&'static str, &'static str)>,
}

impl Visitor for Keys {
    fn section(&mut self, name: &'static str) {
        self.section = name;
    }

    fn key<T: field::Field>(&mut self, name: &'static str, _: &mut T) {
        self.keys.insert((self.section, name));
    }
}

fn all_keys() -> BTreeSet<(&'static str, &'static str)> {
    let (mut keys, mut config) = (Keys::default(), Config::default());
    config.visit(&mut keys);
    keys.section("route");
    Route::last(&config.top, &config.upstream, &config.limits).visit(&mut keys);
    keys.section("probe");
    Probe::default().visit(&mut keys);
    keys.section("webhook");
    Webhook::default().visit(&mut keys);
    keys.keys
}

/// The settings of the default file: section, line, whether it is commented out.
fn settings() -> Vec<(&'static str, &'static str, bool)> {
    let (mut section, mut settings) = ("", Vec::new());
    for line in DEFAULT_FILE.lines() {
        let commented = line.starts_with('#') && !line.starts_with("# ") && line != "#";
        let bare = line.trim_start_matches('#');
        if let Some(name) = bare.strip_prefix("[[") {
            section = name.trim_end_matches(']');
        } else if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if !line.is_empty() && (commented || !line.starts_with('#')) {
            settings.push((section, bare, commented));
        }
    }
    settings
}

/// The file documents the defaults; a default that changed in one place only is a lie.
#[test]
fn the_default_file_is_the_defaults() {
    let config = load(DEFAULT_FILE).unwrap();
    assert_eq!(config.to_toml(), Config::default().to_toml());
    assert_eq!(config.to_toml(), load("").unwrap().to_toml());
    assert_eq!(config.engine, EngineConfig::default());
    assert_eq!(config.embedded, EmbeddedOptions::new("./onlyonce-data"));
}

#[test]
fn the_default_file_has_every_key_and_no_other() {
    let documented: BTreeSet<_> = settings()
        .into_iter()
        .map(|(section, line, _)| (section, line.split_once(" =").unwrap().0))
        .collect();
    assert_eq!(documented, all_keys());
}

#[test]
fn every_example_of_the_default_file_can_be_read() {
    for (section, line, commented) in settings() {
        if commented && !["route", "probe", "webhook"].contains(&section) {
            let head = Some(format!("[{section}]\n")).filter(|_| !section.is_empty());
            let text = format!("{}{line}\n", head.unwrap_or_default());
            let (_, errors) = Config::read(&text, std::iter::empty(), Overrides::default());
            assert_eq!(errors, [], "{text}");
        }
    }
    let routes = DEFAULT_FILE.split_once("\n# Routes:").unwrap().1;
    let routes = routes.lines().filter_map(|line| line.strip_prefix('#'));
    let routes: Vec<_> = routes.filter(|line| !line.starts_with(' ')).collect();
    let config = load(&routes.join("\n")).unwrap();
    assert_eq!(config.routes.len(), 3);
    assert_eq!((config.probes.len(), config.webhooks.len()), (1, 1));
}

#[test]
fn what_is_printed_loads_back_to_the_same() {
    let text = std::fs::read_to_string("tests/fixtures/config/everything.toml").unwrap();
    let config = load(&text).unwrap();
    let printed = config.to_toml();
    let again = load(&printed).unwrap();
    assert_eq!(again.to_toml(), printed);
    assert_eq!(
        format!("{:?}", again.routes()),
        format!("{:?}", config.routes())
    );
    let keys: Vec<_> = all_keys().into_iter().map(|(_, key)| key).collect();
    // The other place of the token keys: only one of the two may be there.
    for key in keys.into_iter().filter(|key| *key != "jwks_file") {
        let line = format!("\n{key} = ");
        assert!(
            format!("\n{printed}").contains(&line),
            "{key} is not in everything.toml"
        );
    }
}

/// Whoever may read may ask for the configuration. A credential can have any header's name.
#[test]
fn headers_of_unusual_names_are_not_shown() {
    let text = "[upstream]\nurls = [\"http://a\"]\n[[probe]]\nname = \"p\"\n\
                url = \"https://p.example/{key}\"\ncompleted = [{ status = \"200\" }]\n\
                headers = { \"Accept\" = \"text/plain\", \"X-Vault-Token\" = \"hunter2\", \
                \"x-mixed\" = \"hunter2 {key}\", \"x-key\" = \"{key} {child:card}\" }\n";
    let printed = load(text).unwrap().to_toml();
    assert!(!printed.contains("hunter2"), "{printed}");
    for line in [
        "\"accept\" = \"text/plain\"",
        "\"x-vault-token\" = \"***\"",
        "\"x-mixed\" = \"***\"",
        "\"x-key\" = \"{key} {child:card}\"",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    // Who takes what was printed for a configuration would ask as nobody.
    let wrong = format!("{:?}", load(&printed).unwrap_err());
    assert!(wrong.contains("headers_file"), "{wrong}");
}

/// Some providers want their credential in the query. Places are shown, and so is what asks for a
/// page or a format.
#[test]
fn parameters_of_unusual_names_are_not_shown() {
    let with_url = |url: &str| {
        format!(
            "[upstream]\nurls = [\"http://a\"]\n[[probe]]\nname = \"p\"\nurl = \"{url}\"\n\
             completed = [{{ status = \"200\" }}]\n"
        )
    };
    for (url, shown) in [
        ("/{key}", "/{key}"),
        ("/a=hunter/{key}", "/a=hunter/{key}"),
        ("/x?k={key}&limit=1", "/x?k={key}&limit=1"),
        ("/x?api_key=hunter2&k={key}", "/x?api_key=***&k={key}"),
        ("/x?k=hunter2-{key}&{operation}", "/x?k=***&{operation}"),
        ("/x?hunter2", "/x?***"),
        ("/x?t=hunter2=2?3", "/x?t=***"),
        (
            "/x?k={body:/a&b=c?d}&s=hunter2",
            "/x?k={body:/a&b=c?d}&s=***",
        ),
        ("/{body:/a?b}/x?s=hunter2", "/{body:/a?b}/x?s=***"),
        ("/x?s=hunter2&k={body:/a}", "/x?s=***&k={body:/a}"),
        ("/x?", "/x?"),
    ] {
        let text = with_url(&format!("https://p.example{url}"));
        let printed = load(&text).unwrap().to_toml();
        assert!(!printed.contains("hunter2"), "{printed}");
        let line = format!("url = \"https://p.example{shown}\"\n");
        assert!(printed.contains(&line), "{line}: {printed}");
        assert_eq!(load(&printed).is_ok(), !shown.contains("***"), "{printed}");
    }
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let text = "listen = \"127.0.0.1:1\"\n[upstream]\nurls = [\"http://a\"]\n";
    let variables = [
        ("ONLYONCE_LISTEN", "127.0.0.1:2"),
        ("ONLYONCE_UPSTREAM_URLS", "http://b, http://c"),
    ];
    let config = with(text, &variables, Overrides::default()).unwrap();
    assert_eq!(config.top.listen.port(), 2);
    assert_eq!(config.upstream.urls.len(), 2);
    let overrides = Overrides {
        upstream: vec!["http://d".into()],
        listen: Some("127.0.0.1:3".into()),
        admin: Some("localhost:4".into()),
        store: Some("memory:".into()),
        profile: Some("ietf".into()),
        key: Some("optional".into()),
    };
    let config = with(text, &variables, overrides).unwrap();
    assert_eq!(config.top.listen.port(), 3);
    assert_eq!(config.top.admin.port(), 4);
    assert_eq!(config.top.store, StoreUrl::Memory);
    assert_eq!(config.top.key, KeyNeed::Optional);
    assert_eq!(
        config
            .upstream
            .urls
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["http://d"]
    );
}

/// A variable that is silently ignored is a limit that somebody believes in.
#[test]
fn every_key_that_is_no_table_has_a_variable() {
    let printed = Config::default().to_toml();
    let (mut section, mut variables) = ("", Vec::new());
    for line in printed.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else {
            let (key, value) = line.split_once(" = ").unwrap();
            let name = [section, key].into_iter().filter(|part| !part.is_empty());
            let name = name.collect::<Vec<_>>().join("_").to_uppercase();
            let value = value.trim_matches(['"', '[', ']']);
            variables.push((format!("ONLYONCE_{name}"), value.to_owned()));
        }
    }
    assert!(variables.len() > 50, "{variables:?}");
    let config = Config::from_text("", variables.into_iter(), Overrides::default()).unwrap();
    assert_eq!(config.to_toml(), printed);
}

#[test]
fn unknown_variables_are_refused_but_for_those_of_others() {
    let others = [
        ("ONLYONCE_CONFIG", "x"),
        ("ONLYONCE_UPDATE", "1"),
        ("ONLYONCE_SIM_SEED", "7"),
        ("ONLYONCE_BENCH_SECONDS", "7"),
        ("HOME", "/"),
    ];
    with("", &others, Overrides::default()).unwrap();
    let refused = with(
        "",
        &[("ONLYONCE_LISTNE", "127.0.0.1:1")],
        Overrides::default(),
    );
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("did you mean \"ONLYONCE_LISTEN\"?"),
        "{refused}"
    );
    let bad = [
        ("ONLYONCE_LIMITS_CONNECTIONS", "many"),
        ("ONLYONCE_LEASE", "15"),
    ];
    let refused = with("", &bad, Overrides::default()).unwrap_err();
    assert!(
        refused.contains("ONLYONCE_LIMITS_CONNECTIONS: limits.connections: "),
        "{refused}"
    );
    assert!(
        refused.contains("ONLYONCE_LEASE: lease: \"15\" has no unit"),
        "{refused}"
    );
}

/// Without a route for the rest, one `[[route]]` would switch everything else off.
#[test]
fn the_default_route_guards_what_no_route_names() {
    let text = "retention = \"2d\"\n[[route]]\npath = \"/search\"\nmode = \"off\"\n";
    let routes = load(text).unwrap().routes();
    let names: Vec<_> = routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["/search", "default"]);
    let rest = routes.find(&http::Method::POST, "/payments").unwrap();
    assert_eq!(rest.mode, onlyonce_http::Mode::Enforce);
    assert_eq!(rest.policy.retention().as_secs(), 2 * 86_400);
    assert!(routes.find(&http::Method::GET, "/payments").is_none());
}

#[test]
fn a_file_that_is_not_there_is_said_so() {
    let file = Path::new("no-such-file.toml");
    let refused = Config::load(Some(file), std::iter::empty(), Overrides::default()).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("no-such-file.toml cannot be used:\n"),
        "{refused}"
    );
}

/// A profile is a beginning: what is written wins over it, and the nearer over the farther.
#[test]
fn keys_win_over_profiles_and_routes_over_the_rest() {
    let text = "profile = \"stripe\"\nretention = \"2d\"\n\
                [[route]]\npath = \"/a\"\n\
                [[route]]\npath = \"/b\"\nprofile = \"square\"\n\
                [[route]]\npath = \"/c\"\nprofile = \"stripe-v2\"\nkey_header = \"X-Key\"\n";
    let routes = load(text).unwrap().routes();
    let find = |path| routes.find(&http::Method::POST, path).unwrap();
    let days = |path| find(path).policy.retention().as_secs() / 86_400;
    assert_eq!(
        [days("/a"), days("/b"), days("/c"), days("/d")],
        [2, 2, 30, 2]
    );
    let places = |path| {
        find(path)
            .key
            .sources
            .iter()
            .map(|source| source.place.written())
    };
    assert!(places("/a").eq(["header:idempotency-key"]));
    assert!(places("/b").eq(["json:/idempotency_key"]));
    assert!(places("/c").eq(["header:x-key"]));
    assert!(!find("/a").policy.scope().path, "stripe's");
    assert!(
        find("/b").policy.scope().path,
        "nothing of stripe's is left"
    );
    let waits = |path| matches!(find(path).in_flight, onlyonce_http::InFlight::Wait(_));
    assert_eq!([waits("/a"), waits("/b"), waits("/d")], [true, false, true]);
    let keys = with(
        "profile = \"aws-ec2\"\nkey = \"required\"\n",
        &[],
        Overrides::default(),
    );
    assert_eq!(keys.unwrap().top.key, KeyNeed::Required);
}

/// A proxy cannot say who the caller is in a header that ends at the gateway, and a key is no
/// caller: everybody who sends it would get the stored response.
#[test]
fn a_caller_is_not_named_by_the_key_or_by_what_the_gateway_writes() {
    let refused = |name: &str, more: &str| {
        let text = format!("{more}\n[principal]\nsource = \"header:{name}\"\n");
        let wrong = with(&text, &[], Overrides::default()).err()?;
        assert!(wrong.contains("principal.source"), "{name}: {wrong}");
        Some(wrong)
    };
    for name in ["Connection", "Host", "Onlyonce-Caller", "X-Forwarded-For"] {
        assert!(refused(name, "").unwrap().contains("by the gateway itself"));
    }
    let key_header = "key_header = \"X-Key\"";
    let route = "[[route]]\npath = \"/a\"\nkey_from = [\"header:X-Key\"]";
    let profile = "profile = \"checkout\"";
    for (name, more) in [
        ("Idempotency-Key", ""),
        ("Idempotency-Key", key_header),
        ("X-Key", key_header),
        ("X-Key", route),
        ("Cko-Idempotency-Key", profile),
    ] {
        assert!(refused(name, more).unwrap().contains("carries the key"));
    }
    for name in ["X-Tenant", "X-Key", "Authorization", "X-Forwarded-User"] {
        assert_eq!(refused(name, ""), None);
    }
}

/// What is printed says the same without the profile's own defaults.
#[test]
fn every_profile_is_printed_so_that_it_loads_back() {
    for name in Profile::presets() {
        let overrides = Overrides {
            profile: Some(name.to_owned()),
            ..Overrides::default()
        };
        let config = with("", &[], overrides).unwrap();
        let printed = config.to_toml();
        let again = load(&printed).unwrap();
        assert_eq!(again.to_toml(), printed, "{name}");
        let (again, routes) = (again.routes(), config.routes());
        assert_eq!(format!("{again:?}"), format!("{routes:?}"), "{name}");
    }
    let paypal = load("profile = \"paypal\"\n").unwrap().routes();
    let order = paypal.find(&http::Method::POST, "/v2/checkout/orders/1/capture");
    assert_eq!(order.unwrap().policy.retention().as_secs(), 6 * 3_600);
}

/// Every file of `tests/fixtures/config` with what `check` says about it.
/// `ONLYONCE_UPDATE=1 cargo test` writes the texts anew.
#[test]
fn what_check_says_is_what_it_said() {
    let update = std::env::var_os("ONLYONCE_UPDATE").is_some();
    let mut files: Vec<_> = std::fs::read_dir("tests/fixtures/config")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|file| {
            file.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    assert!(files.len() >= 10);
    for file in files {
        let config = Config::load(Some(&file), std::iter::empty(), Overrides::default());
        let said = check(config.as_ref()).render();
        let expected = file.with_extension("txt");
        if update {
            std::fs::write(&expected, &said).unwrap();
        }
        let expected = std::fs::read_to_string(expected).unwrap_or_default();
        assert_eq!(said, expected, "{}", file.display());
    }
}
