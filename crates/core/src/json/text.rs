//! Strings: unescaping them, escaping them as RFC 8785 does, and the order of their UTF-16 units.

use alloc::string::String;
use core::cmp::Ordering;

use super::NotCanonical;

/// Unescapes the inside of a string. `offset` is where `raw` starts in the document.
pub(super) fn unescape(raw: &str, offset: usize) -> Result<String, NotCanonical> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let at = offset + raw.len() - escape.len() - 1;
        let (character, used) = escaped(escape, at)?;
        text.push(character);
        rest = escape
            .get(used..)
            .ok_or(NotCanonical::Syntax { offset: at })?;
    }
    text.push_str(rest);
    Ok(text)
}

/// One escape without its backslash: the character, and the bytes it took.
fn escaped(escape: &str, at: usize) -> Result<(char, usize), NotCanonical> {
    let syntax = NotCanonical::Syntax { offset: at };
    let character = match escape.bytes().next().ok_or(syntax)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(escape, at),
        _ => return Err(syntax),
    };
    Ok((character, 1))
}

fn unicode(escape: &str, at: usize) -> Result<(char, usize), NotCanonical> {
    let syntax = NotCanonical::Syntax { offset: at };
    let lone = NotCanonical::LoneSurrogate { offset: at };
    let first = unit(escape, 1).ok_or(syntax)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, 5));
    }
    if escape.get(5..7) != Some("\\u") {
        return Err(lone);
    }
    let second = unit(escape, 7).ok_or(syntax)?;
    if !(0xD800..0xDC00).contains(&first) || !(0xDC00..0xE000).contains(&second) {
        return Err(lone);
    }
    let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    char::from_u32(code)
        .map(|character| (character, 11))
        .ok_or(lone)
}

/// Four hexadecimal digits. `from_str_radix` alone would also take a sign.
fn unit(escape: &str, start: usize) -> Option<u32> {
    let digits = escape.get(start..start + 4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

/// Hands the canonical spelling of `text`, without its quotes, to `push`.
pub(super) fn escape(text: &str, mut push: impl FnMut(&[u8])) {
    let mut rest = text.as_bytes();
    while let Some(at) = find_special(rest) {
        let (plain, tail) = rest.split_at(at);
        push(plain);
        let Some((&byte, tail)) = tail.split_first() else {
            break;
        };
        match byte {
            b'"' => push(b"\\\""),
            b'\\' => push(b"\\\\"),
            0x08 => push(b"\\b"),
            0x09 => push(b"\\t"),
            0x0A => push(b"\\n"),
            0x0C => push(b"\\f"),
            0x0D => push(b"\\r"),
            control => {
                push(b"\\u00");
                push(&[hex(control >> 4), hex(control & 0xF)]);
            }
        }
        rest = tail;
    }
    push(rest);
}

/// The first byte that ends a string, escapes, or may not stand in one as it is.
///
/// Eight bytes at a time: most of a payload is text.
pub(super) fn find_special(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let hits = special(u64::from_le_bytes(*word));
        if hits != 0 {
            return Some(at * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let at = tail
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F))?;
    Some(words.len() * 8 + at)
}

/// Sets the high bit of special bytes. A borrow may also set it above the first, never below.
const fn special(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    let quotes = word ^ (ONES * b'"' as u64);
    let escapes = word ^ (ONES * b'\\' as u64);
    let found_quote = quotes.wrapping_sub(ONES) & !quotes;
    let found_escape = escapes.wrapping_sub(ONES) & !escapes;
    let found_control = word.wrapping_sub(ONES * 0x20) & !word;
    (found_quote | found_escape | found_control) & HIGHS
}

const fn hex(nibble: u8) -> u8 {
    if nibble < 10 {
        b'0' + nibble
    } else {
        b'a' + nibble - 10
    }
}

/// Orders names by their UTF-16 code units, as RFC 8785 asks.
///
/// UTF-8 bytes sort the same way but for one case: U+E000 to U+FFFF come after the surrogates
/// that spell everything above them.
pub(super) fn compare_utf16(left: &str, right: &str) -> Ordering {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    match left.iter().zip(right).find(|(left, right)| left != right) {
        Some((&left, &right)) => rank(left).cmp(&rank(right)),
        None => left.len().cmp(&right.len()),
    }
}

/// 0xEE and 0xEF lead exactly the characters from U+E000 to U+FFFF, and never continue one.
const fn rank(byte: u8) -> u16 {
    match byte {
        0xEE | 0xEF => 0x100 + byte as u16,
        other => other as u16,
    }
}
