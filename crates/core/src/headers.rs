//! Header lines in the form in which they are stored.
//!
//! A replay reads them where they lie: a block decoded from a row shares the row's bytes, and
//! iterating allocates nothing. Order and repeated names are kept.

use core::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// Header or trailer lines, in order. Cloning copies no bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct HeaderBlock(Bytes);

impl HeaderBlock {
    /// Collects lines. A name over 64 KiB or a value over 4 GiB cannot be stored and is `None`;
    /// no HTTP server accepts either.
    #[must_use]
    pub fn from_lines<'a>(lines: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let mut block = BytesMut::new();
        for (name, value) in lines {
            block.put_u16(u16::try_from(name.len()).ok()?);
            block.put_slice(name);
            block.put_u32(u32::try_from(value.len()).ok()?);
            block.put_slice(value);
        }
        Some(Self(block.freeze()))
    }

    /// Takes encoded bytes, or `None` when they are not whole lines.
    #[must_use]
    pub fn from_encoded(bytes: Bytes) -> Option<Self> {
        let mut rest: &[u8] = &bytes;
        while !rest.is_empty() {
            (_, rest) = split_line(rest)?;
        }
        Some(Self(bytes))
    }

    /// The encoded bytes.
    #[must_use]
    pub fn encoded(&self) -> &Bytes {
        &self.0
    }

    /// The lines: name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest: &[u8] = &self.0;
        core::iter::from_fn(move || {
            let (line, after) = split_line(rest)?;
            rest = after;
            Some(line)
        })
    }
}

type Line<'a> = (&'a [u8], &'a [u8]);

fn split_line(bytes: &[u8]) -> Option<(Line<'_>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some(((name, value), rest))
}

impl fmt::Debug for HeaderBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets; names are enough to find a mistake.
        f.debug_list()
            .entries(self.iter().map(|(name, _)| Bytes::copy_from_slice(name)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn lines_come_back_in_order_with_repeats_apart() {
        let lines: [(&[u8], &[u8]); 3] = [
            (b"set-cookie", b"a=1"),
            (b"x-empty", b""),
            (b"set-cookie", b"b=2"),
        ];
        let block = HeaderBlock::from_lines(lines).unwrap();
        assert_eq!(block.iter().collect::<Vec<_>>(), lines);
        assert_eq!(
            HeaderBlock::from_encoded(block.encoded().clone()),
            Some(block)
        );
    }

    #[test]
    fn half_a_line_is_refused() {
        let block = HeaderBlock::from_lines([(&b"name"[..], &b"value"[..])]).unwrap();
        for end in 1..block.encoded().len() {
            assert_eq!(
                HeaderBlock::from_encoded(block.encoded().slice(..end)),
                None
            );
        }
    }
}
