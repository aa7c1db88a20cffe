//! Header lines as text that people can read and that loses no byte.
//!
//! One line each, `name: value`. Bytes that are not printable ASCII are written `\ooo`, as
//! `PostgreSQL`'s own `escape` format does, and a backslash is doubled. So is a colon in a name
//! (`\072`), which therefore ends at the first colon.

use std::fmt::Write;

use onlyonce_core::HeaderBlock;

/// The text of a block.
pub(crate) fn to_text(block: &HeaderBlock) -> String {
    let mut text = String::with_capacity(block.encoded().len());
    for (name, value) in block.iter() {
        escape(&mut text, name, Some(b':'));
        text.push_str(": ");
        escape(&mut text, value, None);
        text.push('\n');
    }
    text
}

fn escape(text: &mut String, bytes: &[u8], also: Option<u8>) {
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' if Some(*byte) != also => text.push(char::from(*byte)),
            // Writing to a string cannot fail.
            other => drop(write!(text, "\\{other:03o}")),
        }
    }
}

/// The block of a text; `None` when it is not one.
pub(crate) fn from_text(text: &str) -> Option<HeaderBlock> {
    let lines: Option<Vec<_>> = text.split_terminator('\n').map(line).collect();
    let lines = lines?;
    HeaderBlock::from_lines(lines.iter().map(|(name, value)| (&name[..], &value[..])))
}

fn line(line: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (name, value) = line.split_once(':')?;
    Some((unescape(name)?, unescape(value.strip_prefix(' ')?)?))
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
        } else if let Some((b'\\', after)) = rest.split_first() {
            bytes.push(b'\\');
            rest = after;
        } else {
            let (digits, after) = rest.split_first_chunk::<3>()?;
            bytes.push(octal(*digits)?);
            rest = after;
        }
    }
    Some(bytes)
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    let value = digits.into_iter().try_fold(0_u32, |value, digit| {
        char::from(digit).to_digit(8).map(|digit| value * 8 + digit)
    });
    u8::try_from(value?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &[(&[u8], &[u8])]) -> HeaderBlock {
        HeaderBlock::from_lines(lines.iter().copied()).unwrap()
    }

    #[test]
    fn ordinary_lines_read_as_they_are() {
        let block = block(&[
            (b"content-type", b"application/json; charset=utf-8"),
            (b"location", b"/payments/1"),
        ]);
        let text = "content-type: application/json; charset=utf-8\nlocation: /payments/1\n";
        assert_eq!(to_text(&block), text);
        assert_eq!(from_text(text), Some(block));
    }

    #[test]
    fn every_byte_comes_back_in_names_and_values() {
        let all: Vec<u8> = (0..=255).collect();
        let block = block(&[(&all, &all), (b"", b""), (b"a", b" b "), (b"a", b": ")]);
        let text = to_text(&block);
        assert!(text.is_ascii());
        assert_eq!(from_text(&text), Some(block));
    }

    #[test]
    fn no_lines_are_no_text() {
        assert_eq!(to_text(&HeaderBlock::default()), "");
        assert_eq!(from_text(""), Some(HeaderBlock::default()));
    }

    /// A row that somebody edited must be refused, not half read.
    #[test]
    fn text_that_is_not_lines_is_refused() {
        for text in ["name", "name:value\n", "a: \\9\n", "a: \\777\n", "a: \\1\n"] {
            assert_eq!(from_text(text), None, "{text:?}");
        }
    }
}
