//! The spellings of one path: how alike two of them are, and in which other ways an API may read
//! one.
//!
//! Asked where a path is compared with patterns. The path that a key belongs to, and that the API
//! gets, is the one that was sent. Nothing is decoded twice, and `+` is no space.

/// How alike a path, or a segment of it, and a pattern are; the nearer is the less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Likeness {
    /// Spelt the same. An escape beyond ASCII is the character itself: there is no other way to
    /// send it in ASCII.
    Spelt,
    /// The same to some APIs: after decoding, but for escapes that hide what a path is made of; and but
    /// for case.
    Alike,
}

/// How alike two segments are, if they are.
pub(crate) fn likeness(literal: &str, part: &str) -> Option<Likeness> {
    if literal == part {
        return Some(Likeness::Spelt);
    }
    if literal.contains('%') || part.contains('%') {
        return escaped_likeness(literal, part);
    }
    let is_ascii = literal.is_ascii() || part.is_ascii();
    let is_folded = literal.eq_ignore_ascii_case(part) || (!is_ascii && is_folded(literal, part));
    is_folded.then_some(Likeness::Alike)
}

fn escaped_likeness(literal: &str, part: &str) -> Option<Likeness> {
    if octets(literal).eq(octets(part)) {
        return Some(Likeness::Spelt);
    }
    let lower = |octet: Octet| Octet {
        byte: octet.byte.to_ascii_lowercase(),
        ..meant(octet)
    };
    if octets(literal).map(lower).eq(octets(part).map(lower)) {
        return Some(Likeness::Alike);
    }
    let is_ascii = |text: &str| octets(text).all(|octet| octet.byte.is_ascii());
    if is_ascii(literal) || is_ascii(part) {
        return None;
    }
    let is_folded = is_folded(&decoded(literal)?, &decoded(part)?);
    is_folded.then_some(Likeness::Alike)
}

fn is_folded(literal: &str, part: &str) -> bool {
    let lower = |text: &str| {
        text.chars()
            .flat_map(char::to_lowercase)
            .collect::<Vec<_>>()
    };
    lower(literal) == lower(part)
}

/// A byte of a path, and whether it was written as an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Octet {
    byte: u8,
    escaped: bool,
}

fn octets(text: &str) -> impl Iterator<Item = Octet> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (first, after) = rest.split_first()?;
        let escape = escape(rest);
        rest = match escape {
            Some(_) => rest.get(3..).unwrap_or_default(),
            None => after,
        };
        let byte = escape.unwrap_or(*first);
        Some(Octet {
            byte,
            escaped: escape.is_some() && byte.is_ascii(),
        })
    })
}

/// The byte that an escape at the beginning stands for.
fn escape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

/// A byte as APIs take it: most escapes mean the character. But an escaped slash is no slash, and
/// what only looks like the end of a name is not its end.
fn meant(octet: Octet) -> Octet {
    let stays = matches!(octet.byte, b'/' | b'\\' | b'%' | ..=b' ' | 0x7f);
    Octet {
        escaped: octet.escaped && stays,
        ..octet
    }
}

/// Text in which escapes that stay begin with a character that no path has.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    for octet in octets(text).map(meant) {
        bytes.extend(octet.escaped.then_some(0));
        bytes.push(octet.byte);
    }
    String::from_utf8(bytes).ok()
}

/// A literal as patterns keep it: escapes of unreserved characters and beyond ASCII decoded, the
/// digits of the others in upper case.
pub(crate) fn normal(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    for octet in octets(text) {
        if octet.escaped && !is_unreserved(octet.byte) {
            bytes.extend(format!("%{:02X}", octet.byte).bytes());
        } else {
            bytes.push(octet.byte);
        }
    }
    // Escapes that are no text stay escapes.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Those whose escape RFC 3986 calls equivalent to the character itself.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether every `%` begins an escape.
pub(crate) fn is_escaped_well(text: &str) -> bool {
    octets(text).all(|octet| octet.byte != b'%' || octet.escaped)
}

/// The longest path that is read in all ways in which APIs may read it, and how many ways there may be.
/// Each is a copy, and anybody may send such a path.
const READ_BYTES_MAX: usize = 1024;
const WAYS_MAX: usize = 32;

/// How some APIs, though not nearly every one ([`plain`]), may read a path. `None`: in more ways than are
/// tried.
pub(crate) fn odd(path: &str) -> Option<Vec<String>> {
    let mut read = Vec::new();
    if is_plain(path) {
        return Some(read);
    }
    if path.len() > READ_BYTES_MAX {
        return None;
    }
    let usual = normalized(path, Empty::Dropped);
    let mut add = |other: String| {
        if other != path && other != usual && !read.contains(&other) {
            read.push(other);
        }
    };
    for handed_on in servers(path)? {
        add(normalized(&handed_on, Empty::Dropped));
        add(normalized(&handed_on, Empty::Kept));
    }
    Some(read)
}

/// A path as the parts of a server may hand it on before anybody resolves its dots: maybe without what
/// looks like a host, and then with any of the other steps below, in any order.
fn servers(path: &str) -> Option<Vec<String>> {
    let mut servers = vec![path.to_owned()];
    servers.extend(without_authority(path).map(ToOwned::to_owned));
    if !path.contains([';', '\\', '%']) {
        return Some(servers);
    }
    let mut at = 0;
    // It ends: every step leaves fewer of the characters that it is about.
    while let Some(path) = servers.get(at) {
        let steps = [
            without_parameters(path),
            path.replace('\\', "/"),
            with_separators_decoded(path),
            before_query(path).to_owned(),
        ];
        for read in steps {
            if !servers.contains(&read) {
                servers.push(read);
            }
        }
        if servers.len() > WAYS_MAX {
            return None;
        }
        at += 1;
    }
    Some(servers)
}

/// What becomes of empty segments while `..` is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// They are gone before, as where slashes are merged first: `/v1//..` is `/`.
    Dropped,
    /// They are segments like others until then (RFC 3986, 5.2.4): `/v1//..` is `/v1/`.
    Kept,
}

/// A path with the escapes of unreserved characters decoded, dots resolved, and without empty
/// segments.
fn normalized(path: &str, empty: Empty) -> String {
    let decoded = unreserved(path);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "." => {}
            "" if empty == Empty::Dropped => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    segments.retain(|segment| !segment.is_empty());
    format!("/{}", segments.join("/"))
}

/// The usual spelling of a path, as nearly every API reads it: escapes of unreserved characters
/// decoded, dot segments resolved, empty segments and a slash at the end left out. `None` when the
/// path is spelt like that already.
pub(crate) fn plain(path: &str) -> Option<String> {
    if is_plain(path) {
        return None;
    }
    Some(normalized(path, Empty::Dropped)).filter(|plain| plain != path)
}

/// Whether a path has certainly one reading: for nearly every request, without an allocation.
pub(crate) fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let begins_with = |end: &[u8]| end.first().is_none_or(|byte| matches!(byte, b'/' | b'.'));
    let unusual = bytes.iter().enumerate().any(|(at, byte)| match byte {
        b'%' | b';' | b'\\' => true,
        b'/' => bytes.get(at + 1..).is_none_or(begins_with),
        _ => false,
    });
    path == "/" || (path.starts_with('/') && !unusual)
}

/// A path with the escapes of unreserved characters decoded.
fn unreserved(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        decoded.push_str(before);
        let byte = escape(from.as_bytes()).filter(|byte| is_unreserved(*byte));
        decoded.push(byte.map_or('%', char::from));
        let taken = if byte.is_some() { 3 } else { 1 };
        rest = from.get(taken..).unwrap_or_default();
    }
    decoded.push_str(rest);
    decoded
}

/// A path as servlets read it: a segment ends where its `;parameters` begin.
fn without_parameters(path: &str) -> String {
    let name = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
    let names: Vec<_> = path.split('/').map(name).collect();
    names.join("/")
}

/// A path as it is read where escapes are decoded before it is taken apart.
fn with_separators_decoded(path: &str) -> String {
    let separators = [
        ("%2", ['F', 'f'], "/"),
        ("%5", ['C', 'c'], "\\"),
        ("%3", ['B', 'b'], ";"),
    ];
    separators
        .iter()
        .fold(path.to_owned(), |path, (begin, ends, separator)| {
            ends.iter().fold(path, |path, end| {
                path.replace(&format!("{begin}{end}"), separator)
            })
        })
}

/// A path as it is read where what was decoded is taken for a target again: it ends before its query.
fn before_query(path: &str) -> &str {
    let escapes = ["%3F", "%3f", "%23"];
    let ends = escapes.iter().filter_map(|escape| path.find(escape));
    path.get(..ends.min().unwrap_or(path.len())).unwrap_or(path)
}

/// A path as it is read where a target is resolved as a URL: `//x/payments` names the host `x`.
fn without_authority(path: &str) -> Option<&str> {
    let after = path.strip_prefix('/')?.strip_prefix(['/', '\\'])?;
    after.find('/').and_then(|at| after.get(at..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusual_spelling_has_a_plain_one() {
        for path in [
            "//payments",
            "/payments/",
            "/./payments",
            "/x/../payments",
            "/%70ayments",
            "/%2e/payments",
            "/x/%2E%2e/payments//",
        ] {
            assert_eq!(plain(path).as_deref(), Some("/payments"), "{path}");
        }
        for path in [
            "/",
            "/payments",
            "/a%2Fb",
            "/a%20b",
            "/%",
            "/%f",
            "/%zz",
            "/é",
            "/a;b",
            "/a\\b",
        ] {
            assert_eq!(plain(path), None, "{path}");
        }
        assert_eq!(plain("/../.."), Some("/".into()));
        assert_eq!(plain("//"), Some("/".into()));
    }

    #[test]
    fn a_usual_path_has_no_other_reading() {
        for path in ["/", "/payments", "/payments/1", "/é", "/A:b@c+d"] {
            assert_eq!(plain(path), None, "{path}");
            assert_eq!(odd(path), Some(Vec::new()), "{path}");
        }
    }

    #[test]
    fn some_apis_read_parameters_and_separators_where_others_read_names() {
        for (path, expected) in [
            ("/a;x=1/b;", &["/a/b"][..]),
            ("/x/..;/a", &["/a"]),
            ("/a%2Fb", &["/a/b"]),
            ("/\\a%5cb/", &["/a%5cb", "/\\a\\b", "/a/b"]),
            ("/a;x%3By", &["/a", "/a;x;y"]),
            ("/\\a;b", &["/\\a", "/a;b", "/a"]),
            ("/a//../b", &["/a/b"]),
            ("/a/\\../b", &["/b", "/a/b"]),
            (
                "/public/a\\b%2F..%2Fc",
                &["/public/a/b%2F..%2Fc", "/public/c", "/public/a/c"],
            ),
            ("/a%3Fb/../c", &["/a"]),
            ("//x/a", &["/a"]),
            ("/\\x/a", &["/a", "/x/a"]),
            ("/a%252Fb", &[]),
        ] {
            let read = odd(path).unwrap();
            for one in expected {
                assert!(
                    read.iter().any(|read| read == one),
                    "{path}: {one} in {read:?}"
                );
            }
            assert!(expected.is_empty() == read.is_empty(), "{path}: {read:?}");
        }
    }

    #[test]
    fn a_path_that_may_be_read_in_too_many_ways_is_not_read_in_any() {
        let many = "/\\x/%5Cb/b\\%5C..\\%3B%5Cx\\a\\a/;%2F%2F..%2Fx\\%..3B;%%3F/aa%3B%5C\\b%3B3%23/a%5C2F%3F";
        let long = format!("/;{}", "a".repeat(READ_BYTES_MAX));
        for path in [many, &long] {
            assert_eq!(odd(path), None, "{path}");
        }
    }

    #[test]
    fn segments_are_alike_by_what_they_mean() {
        use Likeness::{Alike, Spelt};
        for (literal, part, expected) in [
            ("a", "a", Some(Spelt)),
            ("café", "caf%C3%a9", Some(Spelt)),
            ("%ff", "%FF", Some(Spelt)),
            ("a%2fb", "a%2Fb", Some(Spelt)),
            ("a:b", "a%3Ab", Some(Alike)),
            ("a%3Ab", "a:b", Some(Alike)),
            ("a", "%61", Some(Alike)),
            ("a", "A", Some(Alike)),
            ("a:b", "A%3ab", Some(Alike)),
            ("café", "CAF%C3%89", Some(Alike)),
            ("%41", "a", Some(Alike)),
            ("a%2Fé", "a%2F%C3%89", Some(Alike)),
            ("a%5Cb", "a\\b", None),
            ("a%25b", "a%b", None),
            ("a", "a%20", None),
            ("a", "a%00", None),
            ("a", "a%7F", None),
            ("é%2F", "É%5C", None),
            ("%fe", "%ff", None),
            ("a", "ab", None),
            ("é", "e", None),
        ] {
            assert_eq!(likeness(literal, part), expected, "{literal} {part}");
        }
    }

    #[test]
    fn a_literal_is_kept_in_one_spelling() {
        for (text, expected) in [
            ("a", "a"),
            ("%70ay", "pay"),
            ("caf%c3%a9", "café"),
            ("a%3ab%2f", "a%3Ab%2F"),
            ("%ff", "%ff"),
        ] {
            assert_eq!(normal(text), expected, "{text}");
        }
    }
}
