//! The deployment's hashing secret: two of them, and one key has two rows.

use onlyonce_store::Filter;

use crate::suite::samples::at;
use crate::suite::{Harness, Setup, together};

/// The first instance brings it.
pub async fn the_first_candidate_is_kept<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    assert_eq!(store.secret([1; 32]).await, [1; 32]);
    assert_eq!(store.secret([1; 32]).await, [1; 32]);
}

/// The second instance takes what is there.
pub async fn a_later_candidate_gets_the_first<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.secret([1; 32]).await;
    for byte in 2..10 {
        assert_eq!(store.secret([byte; 32]).await, [1; 32]);
    }
}

/// Any 32 bytes are a secret, and zeros are not "none".
pub async fn a_secret_of_any_bytes_is_kept<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    assert_eq!(store.secret([0; 32]).await, [0; 32]);
    assert_eq!(store.secret([0xff; 32]).await, [0; 32]);
}

/// A fleet that starts all at once must agree, or the same key executes once per secret.
pub async fn sixteen_first_callers_agree<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let callers = (1..=16).map(|byte| {
        let store = store.clone();
        async move { store.secret([byte; 32]).await }
    });
    let secrets = together(callers).await;
    let kept = store.secret([99; 32]).await;
    assert!(secrets.iter().all(|secret| *secret == kept));
    assert!((1..=16).any(|byte| kept == [byte; 32]), "one of theirs");
}

/// The secret is not a row: operators do not list it, sweeps do not purge it.
pub async fn the_secret_is_neither_listed_nor_due<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.secret([1; 32]).await;
    assert!(store.ids(&Filter::default(), 10).await.is_empty());
    assert!(store.due(at(u64::MAX), 10).await.is_empty());
}
