//! Places that are filled, and texts that are no templates.

use super::*;

fn known(memo: &Memo) -> Known<'_> {
    static ID: RecordId = RecordId::from_bytes([0xab; 32]);
    Known {
        id: &ID,
        created_at: Timestamp::from_millis(1234),
        memo,
        child: &|name| (name == "card").then(|| "c0ffee".to_owned()),
    }
}

fn memo(values: &[(&str, &str)]) -> Memo {
    Memo::from_values(values.iter().copied())
}

#[test]
fn places_are_filled_and_percent_encoded() {
    let memo = memo(&[
        ("key", "a/b ?&é"),
        ("body:/order/id", "7"),
        ("path:id", "x"),
    ]);
    let url = Template::url("https://p.example:8443/c/{key}/{path:id}?o={body:/order/id}&{{c}}");
    assert_eq!(url, Err(TemplateError::Character));
    let url = Template::url("https://p.example:8443/c/{key}/{path:id}?o={body:/order/id}");
    let url = url.unwrap();
    assert_eq!(url.authority(), Some((true, "p.example:8443")));
    assert_eq!(
        url.render(&known(&memo)).unwrap(),
        "https://p.example:8443/c/a%2Fb%20%3F%26%C3%A9/x?o=7"
    );
    let header = Template::parse("{{{child:card}}} {operation}").unwrap();
    let expected = format!("{{c0ffee}} {}.1234", "ab".repeat(32));
    assert_eq!(header.render(&known(&memo)).unwrap(), expected);
}

/// Half a question is a question about something else: a list of all charges, say.
#[test]
fn what_is_not_known_renders_nothing() {
    let memo = memo(&[("key", "."), ("path:id", ""), ("body:/a", "x/../../y")]);
    for place in ["{key}", "{path:id}", "{body:/a}"] {
        let url = Template::url(&format!("http://p/{place}")).unwrap();
        let refused = url.render(&known(&memo)).unwrap_err();
        assert!(matches!(refused, NotRendered::Unusable(_)), "{refused}");
    }
    for place in ["{principal}", "{body:/b}", "{child:other}", "{path:x}"] {
        let url = Template::url(&format!("http://p/{place}")).unwrap();
        let refused = url.render(&known(&memo)).unwrap_err();
        assert!(matches!(refused, NotRendered::Missing(_)), "{refused}");
    }
    let long = "x".repeat(9000);
    let template = Template::parse(&long).unwrap();
    assert_eq!(template.render(&known(&memo)), Err(NotRendered::Long));
}

#[test]
fn what_is_no_template_is_refused_with_the_reason() {
    for text in ["{", "}", "{key", "a}b", "{{key}", "{key}}"] {
        assert_eq!(Template::parse(text), Err(TemplateError::Brace), "{text}");
    }
    for text in ["{}", "{kye}", "{child:}", "{path:}", "{file:x}", "{key:x}"] {
        let refused = Template::parse(text);
        assert!(matches!(refused, Err(TemplateError::Unknown(_))), "{text}");
    }
    let refused = Template::parse("{body:amount}");
    assert!(matches!(refused, Err(TemplateError::Pointer(_))));
    let long = format!("{{path:{}}}", "x".repeat(300));
    assert!(matches!(
        Template::parse(&long),
        Err(TemplateError::TooLong(_))
    ));
}

/// What a client sends must never choose whom the gateway talks to, or what it says there.
#[test]
fn a_url_names_its_host_itself() {
    for url in [
        "https://{key}/x",
        "https://p.{key}/x",
        "https://p:{key}",
        "https://p{key}/x",
        "https://p{key}",
    ] {
        let refused = Template::url(url).unwrap_err();
        assert!(
            matches!(refused, TemplateError::Host | TemplateError::NoUrl),
            "{url}: {refused}"
        );
    }
    for url in [
        "",
        "{key}",
        "p/x",
        "ftp://p/",
        "//p/",
        "https://",
        "https:///x",
        "http://:80/",
    ] {
        assert_eq!(Template::url(url), Err(TemplateError::NoUrl), "{url}");
    }
    assert_eq!(
        Template::url("http://u:hunter2@p/"),
        Err(TemplateError::User)
    );
    for url in [
        "http://p/a b",
        "http://p/#x",
        "http://p/\u{e9}",
        "http://p/\n",
    ] {
        assert_eq!(Template::url(url), Err(TemplateError::Character), "{url}");
    }
    assert!(Template::url("http://p?x={key}").is_ok());
}
