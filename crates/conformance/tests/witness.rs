//! The witness counts what happened: every effect that was answered, and none that was not.
#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::thread;

use onlyonce_conformance::Witness;
use tempfile::TempDir;

fn witness() -> (TempDir, Witness) {
    let folder = tempfile::tempdir().unwrap();
    let witness = Witness::open(folder.path().join("effects")).unwrap();
    (folder, witness)
}

/// The count that every fault test asks for.
#[test]
fn an_effect_is_counted_under_its_key() {
    let (_folder, witness) = witness();
    assert_eq!(witness.record("a").unwrap(), 1);
    assert_eq!(witness.record("b").unwrap(), 1);
    assert_eq!(witness.record("a").unwrap(), 2);
    assert_eq!(witness.count("a").unwrap(), 2);
    assert_eq!(witness.count("c").unwrap(), 0);
    assert_eq!(witness.total().unwrap(), 3);
    assert_eq!(
        witness.doubles().unwrap(),
        BTreeMap::from([("a".into(), 2)])
    );
}

/// A key that could imitate the format could hide a double, or invent one.
#[test]
fn a_key_of_any_text_is_one_key() {
    let (_folder, witness) = witness();
    let keys = [
        "",
        "\t",
        "\n",
        "\\",
        "\\n",
        "a\t.\nb\t",
        "a\t\t.\n",
        "支払い 🦀",
    ];
    for key in keys {
        witness.record_with(key, "note\t\n\\").unwrap();
    }
    let reopened = Witness::open(witness.path()).unwrap();
    for key in keys {
        assert_eq!(reopened.count(key).unwrap(), 1, "{key:?}");
        assert_eq!(reopened.notes(key).unwrap(), ["note\t\n\\"], "{key:?}");
    }
    assert_eq!(reopened.total().unwrap(), keys.len());
}

/// The upstream is restarted between a request and its retry.
#[test]
fn counts_go_on_after_opening_again() {
    let (_folder, witness) = witness();
    witness.record("a").unwrap();
    let reopened = Witness::open(witness.path()).unwrap();
    assert_eq!(reopened.record("a").unwrap(), 2);
}

/// An upstream serves many requests at once; each effect must be counted, and numbered once.
#[test]
fn threads_share_a_witness() {
    let (_folder, witness) = witness();
    let numbers: BTreeSet<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| [(); 25].map(|()| witness.record("a").unwrap())))
            .collect();
        let numbers = threads.into_iter().map(|thread| thread.join().unwrap());
        numbers.flatten().collect()
    });
    assert_eq!(numbers, (1..=200).collect());
    assert_eq!(Witness::open(witness.path()).unwrap().total().unwrap(), 200);
}

/// The harness counts while the upstream's process writes.
#[test]
fn another_opening_sees_effects_as_they_happen() {
    let (_folder, witness) = witness();
    let reader = Witness::open(witness.path()).unwrap();
    for count in 1..=10 {
        witness.record("a").unwrap();
        assert_eq!(reader.count("a").unwrap(), count);
    }
}

/// kill -9 may cut the last line anywhere: that effect was not answered, and those before and
/// after it still count.
#[test]
fn a_line_cut_off_at_any_byte_harms_no_other() {
    let (folder, witness) = witness();
    witness.record("before").unwrap();
    let whole = fs::read(witness.path()).unwrap().len();
    witness.record_with("torn", "attempt 1").unwrap();
    let bytes = fs::read(witness.path()).unwrap();
    for end in whole..bytes.len() {
        let path = folder.path().join(format!("cut at {end}"));
        fs::write(&path, &bytes[..end]).unwrap();
        let recovered = Witness::open(&path).unwrap();
        assert_eq!(recovered.count("torn").unwrap(), 0);
        assert_eq!(recovered.record("after").unwrap(), 1);
        let reopened = Witness::open(&path).unwrap();
        for key in ["before", "after"] {
            assert_eq!(reopened.count(key).unwrap(), 1, "{key} at {end}");
        }
        // Cut before its newline alone, the line is whole once another has been written.
        let expected = usize::from(end == bytes.len() - 1);
        assert_eq!(reopened.count("torn").unwrap(), expected, "at {end}");
    }
}

/// A reader that meets half a line must count it when its other half comes.
#[test]
fn a_line_seen_half_written_is_counted_once_it_is_whole() {
    let (_folder, witness) = witness();
    let mut log = OpenOptions::new()
        .append(true)
        .open(witness.path())
        .unwrap();
    for part in ["key", "\tno", "te\t.", "\n"] {
        assert_eq!(witness.total().unwrap(), 0, "before {part:?}");
        log.write_all(part.as_bytes()).unwrap();
    }
    assert_eq!(witness.notes("key").unwrap(), ["note"]);
}
