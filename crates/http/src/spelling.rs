//! The spellings of one path: how alike two of them are, and in which other ways an API may read
//! one.
//!
//! Only the choice of a route asks here. The path that a key belongs to, and that the API gets, is
//! the one that was sent. Nothing is decoded twice, and `+` is no space.

/// How alike a segment of a path and a literal are; the nearest is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Likeness {
    /// Spelt the same. An escape beyond ASCII is the character itself: there is no other way to
    /// send it in ASCII.
    Spelt,
    /// The same after decoding, but for escapes that hide what a path is made of.
    Decoded,
    /// The same but for case.
    Folded,
    /// Of whole paths: the same but for a slash that is missing at the end.
    Unended,
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
    is_folded.then_some(Likeness::Folded)
}

fn escaped_likeness(literal: &str, part: &str) -> Option<Likeness> {
    if octets(literal).eq(octets(part)) {
        return Some(Likeness::Spelt);
    }
    if octets(literal).map(meant).eq(octets(part).map(meant)) {
        return Some(Likeness::Decoded);
    }
    let lower = |octet: Octet| Octet {
        byte: octet.byte.to_ascii_lowercase(),
        ..meant(octet)
    };
    if octets(literal).map(lower).eq(octets(part).map(lower)) {
        return Some(Likeness::Folded);
    }
    let is_ascii = |text: &str| octets(text).all(|octet| octet.byte.is_ascii());
    if is_ascii(literal) || is_ascii(part) {
        return None;
    }
    let is_folded = is_folded(&decoded(literal)?, &decoded(part)?);
    is_folded.then_some(Likeness::Folded)
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

/// How an API may read a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The path that it reads.
    pub(crate) path: String,
    /// Whether nearly every API reads paths like that, and not only some.
    pub(crate) usual: bool,
}

/// The other readings of a path that is spelt unusually, the nearest first.
pub(crate) fn readings(path: &str) -> Vec<Reading> {
    let mut readings = Vec::new();
    if is_plain(path) {
        return readings;
    }
    let mut add = |read: String, usual| {
        let is_known = |known: &Reading| known.path == read;
        if read != path && !readings.iter().any(is_known) {
            readings.push(Reading { path: read, usual });
        }
    };
    add(normalized(path, Empty::Dropped), true);
    for read in servers(path) {
        add(normalized(&read, Empty::Dropped), false);
        add(normalized(&read, Empty::Kept), false);
    }
    readings
}

/// A path as the parts of a server may hand it on before anybody resolves its dots: without the
/// parameters of segments, with decoded separators, or both, in either order.
fn servers(path: &str) -> Vec<String> {
    let mut servers = vec![path.to_owned()];
    if path.contains([';', '\\', '%']) {
        let (named, separated) = (without_parameters(path), with_all_separators(path));
        let parted = separated.replace("%3B", ";").replace("%3b", ";");
        let both = [without_parameters(&parted), with_all_separators(&named)];
        servers.extend([named, separated]);
        servers.extend(both);
        servers.dedup();
    }
    servers
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

/// The usual spelling of a path: escapes of unreserved characters decoded, dot segments resolved,
/// empty segments and a slash at the end left out. `None` when the path is spelt like that already.
///
/// Many services answer `//payments` and `/payments/` as they answer `/payments`. A client whose
/// base URL ends in a slash must not go unguarded for it.
pub(crate) fn plain(path: &str) -> Option<String> {
    if is_plain(path) {
        return None;
    }
    Some(normalized(path, Empty::Dropped)).filter(|plain| plain != path)
}

/// Whether a path has certainly one reading: for nearly every request, without an allocation.
fn is_plain(path: &str) -> bool {
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

/// A path as it is read where escapes are decoded before it is taken apart, or a backslash is
/// taken for a slash.
fn with_all_separators(path: &str) -> String {
    let spellings = ["%2F", "%2f", "%5C", "%5c", "\\"];
    let read = |path: String, written: &&str| path.replace(written, "/");
    spellings.iter().fold(path.to_owned(), read)
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
            assert_eq!(readings(path), [], "{path}");
        }
    }

    #[test]
    fn some_apis_read_parameters_and_separators_where_others_read_names() {
        for (path, expected) in [
            ("/a;x=1/b;", &["/a/b"][..]),
            ("/x/..;/a", &["/a"]),
            ("/a%2Fb", &["/a/b"]),
            ("/\\a%5cb/", &["/\\a%5cb", "/a/b"]),
            ("/a;x%3By", &["/a"]),
            ("/x\\..\\a%3Bb", &["/a%3Bb", "/a"]),
            ("/\\a;b", &["/\\a", "/a;b", "/a"]),
            ("/x;%2Fy/..%2Fa", &["/x/..%2Fa", "/x;/a", "/x/a", "/a"]),
            ("/a//../b", &["/b", "/a/b"]),
            ("/a/\\../b", &["/b", "/a/b"]),
            ("/a%252Fb", &[]),
        ] {
            let read: Vec<_> = readings(path).into_iter().map(|one| one.path).collect();
            assert_eq!(read, expected, "{path}");
        }
    }

    #[test]
    fn segments_are_alike_by_what_they_mean() {
        use Likeness::{Decoded, Folded, Spelt};
        for (literal, part, expected) in [
            ("a", "a", Some(Spelt)),
            ("café", "caf%C3%a9", Some(Spelt)),
            ("%ff", "%FF", Some(Spelt)),
            ("a%2fb", "a%2Fb", Some(Spelt)),
            ("a:b", "a%3Ab", Some(Decoded)),
            ("a%3Ab", "a:b", Some(Decoded)),
            ("a", "%61", Some(Decoded)),
            ("a", "A", Some(Folded)),
            ("a:b", "A%3ab", Some(Folded)),
            ("café", "CAF%C3%89", Some(Folded)),
            ("%41", "a", Some(Folded)),
            ("a%2Fé", "a%2F%C3%89", Some(Folded)),
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
