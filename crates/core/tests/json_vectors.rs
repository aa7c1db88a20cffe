//! RFC 8785: its published documents, and the first million of its published numbers.
#![allow(
    clippy::unwrap_used,
    clippy::format_collect,
    reason = "a test may stop at once"
)]

use onlyonce_core::json::{canonicalize, format_number, rfc8785};
use sha2::{Digest, Sha256};

macro_rules! vector {
    ($directory:literal, $name:literal, $extension:literal) => {
        include_bytes!(concat!(
            "vectors/jcs/",
            $directory,
            "/",
            $name,
            ".",
            $extension
        ))
        .as_slice()
    };
}

macro_rules! documents {
    ($($name:literal)*) => {
        [$((
            $name,
            vector!("input", $name, "json"),
            vector!("output", $name, "json"),
            vector!("outhex", $name, "txt"),
        )),*]
    };
}

/// `values.json` holds 333333333.33333329, which the RFC rounds and a fingerprint must not.
#[test]
fn the_published_documents_have_their_published_form() {
    for (name, input, output, hex) in
        documents!["arrays" "french" "structures" "unicode" "values" "weird"]
    {
        let canonical = rfc8785(input).unwrap();
        assert_eq!(canonical, output, "{name}");
        let bytes: Vec<u8> = std::str::from_utf8(hex)
            .unwrap()
            .split_ascii_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        assert_eq!(canonical, bytes, "{name}");
        assert_eq!(rfc8785(&canonical).unwrap(), canonical, "{name}");
        let exact = (name != "values").then_some(canonical);
        assert_eq!(canonicalize(input).ok(), exact, "{name}");
    }
}

/// Sums over the first lines of the published file, from its README.
const SUMS: [(usize, &str); 4] = [
    (
        1_000,
        "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687",
    ),
    (
        10_000,
        "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892",
    ),
    (
        100_000,
        "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7",
    ),
    (
        1_000_000,
        "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16",
    ),
];

/// One misprinted digit would make equal amounts differ, or different ones equal. The file is
/// generated, printed by the formatter that production uses, and compared by its checksum.
#[test]
fn a_million_numbers_print_as_published() {
    let mut sums = SUMS.iter();
    let mut next = sums.next();
    let mut hash = Sha256::new();
    for (line, bits) in numbers().enumerate() {
        let Some((lines, sum)) = next else { break };
        let text = format_number(f64::from_bits(bits));
        hash.update(format!("{bits:x},{text}\n"));
        // What the formatter prints is exact, so the reader takes it back as it is.
        if line % 16 == 0 {
            assert_eq!(canonicalize(text.as_bytes()).unwrap(), text.as_bytes());
            assert_eq!(text.parse(), Ok(f64::from_bits(bits)));
        }
        if line + 1 == *lines {
            let digest = hash.clone().finalize();
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, *sum, "{lines} lines");
            next = sums.next();
        }
    }
    assert!(next.is_none());
}

/// Chosen values, then 2,000 around the smallest normal, then a chain of SHA-256 blocks.
fn numbers() -> impl Iterator<Item = u64> {
    let serial = (0..2_000).map(|offset| 0x0010_0000_0000_0000 + offset);
    let chosen = include_str!("vectors/jcs/numbers.txt")
        .lines()
        .map(|line| u64::from_str_radix(line, 16).unwrap());
    chosen.chain(serial).chain(chain())
}

fn chain() -> impl Iterator<Item = u64> {
    let blocks =
        std::iter::successors(Some([0_u8; 32]), |block| Some(Sha256::digest(block).into()));
    blocks
        .skip(1)
        .flat_map(|block| block.as_chunks::<8>().0.to_vec())
        .map(u64::from_le_bytes)
        .filter(|bits| {
            let value = f64::from_bits(*bits);
            value.is_finite() && value != 0.0
        })
}
