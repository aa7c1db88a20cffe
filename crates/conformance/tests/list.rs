//! The list of cases is whole.

use onlyonce_conformance::suite;
use onlyonce_conformance::volatile;
use onlyonce_store::MemoryStore;

const SOURCES: [(&str, &str); 13] = [
    ("claim", include_str!("../src/suite/cases/claim.rs")),
    ("versions", include_str!("../src/suite/cases/versions.rs")),
    ("values", include_str!("../src/suite/cases/values.rs")),
    ("identity", include_str!("../src/suite/cases/identity.rs")),
    ("deadlines", include_str!("../src/suite/cases/deadlines.rs")),
    ("sweeping", include_str!("../src/suite/cases/sweeping.rs")),
    ("listing", include_str!("../src/suite/cases/listing.rs")),
    ("paging", include_str!("../src/suite/cases/paging.rs")),
    ("clock", include_str!("../src/suite/cases/clock.rs")),
    ("secret", include_str!("../src/suite/cases/secret.rs")),
    (
        "concurrency",
        include_str!("../src/suite/cases/concurrency.rs"),
    ),
    (
        "durability",
        include_str!("../src/suite/cases/durability.rs"),
    ),
    ("sharing", include_str!("../src/suite/cases/sharing.rs")),
];

fn listed() -> Vec<String> {
    fn names<H: suite::Harness>(_: H) -> Vec<String> {
        let cases = suite::all::<H>().into_iter();
        cases.map(|case| format!("{case:?}")).collect()
    }
    names(volatile(MemoryStore::new))
}

/// A case that is written and not listed is never run, and nobody notices.
#[test]
fn every_case_that_is_written_is_listed() {
    let written: Vec<_> = SOURCES
        .iter()
        .flat_map(|(group, source)| {
            source.lines().filter_map(move |line| {
                let name = line.strip_prefix("pub async fn ")?.split('<').next()?;
                Some(format!("{group}::{name}"))
            })
        })
        .collect();
    assert_eq!(written, listed());
    assert!(written.len() >= 60);
}

/// A durable store that its harness calls volatile would skip the cases that it must pass.
#[test]
fn a_harness_cannot_excuse_a_store_from_what_its_profile_promises() {
    fn outcomes<H: suite::Harness>(harness: &H) -> Vec<suite::Outcome> {
        let cases = suite::all::<H>().into_iter();
        let needing = cases.filter(|case| case.not_applicable().is_some());
        needing.map(|case| case.check(harness.clone())).collect()
    }
    let honest = outcomes(&volatile(MemoryStore::new));
    assert!(!honest.is_empty());
    for outcome in honest {
        assert!(matches!(outcome, suite::Outcome::NotApplicable(_)));
    }
    for outcome in outcomes(&volatile(kept::Kept::default)) {
        let suite::Outcome::Broken(how) = outcome else {
            panic!("excused: {outcome:?}");
        };
        assert!(how.contains("profile().durable"), "{how}");
    }
}

mod kept;
