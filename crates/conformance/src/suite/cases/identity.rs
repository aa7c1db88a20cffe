//! Ids are any 32 bytes: a store that treats them as text, or as parts, mixes up keys.

use onlyonce_core::{Fence, PrincipalDigest, RecordId};
use onlyonce_store::{Filter, ListStore, Store};

use crate::suite::samples::{at, completed, executing, id};
use crate::suite::{Handle, Harness, Setup, same};

/// Writes a row under each id, then checks that each has its own, listed once.
async fn keeps_apart<S: Store + ListStore>(store: &Handle<S>, ids: &[RecordId]) {
    for (number, id) in (0..).zip(ids) {
        store.put(id, &executing(number, at(5_000))).await;
    }
    for (number, id) in (0..).zip(ids) {
        let row = store.row(id).await;
        same(&row.record, &executing(number, at(5_000)));
    }
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let listed = store.ids(&Filter::default(), 100).await;
    assert_eq!(listed, sorted);
    let mut due = store.due(at(5_000), ids.len() + 1).await;
    due.sort_unstable();
    assert_eq!(due, sorted);
}

/// The least and the greatest id: a range that ends at either must still include it.
pub async fn ids_of_zeros_and_of_ones_are_ids<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let ids = [[0; 32], [0xff; 32]].map(RecordId::from_bytes);
    keeps_apart(&store, &ids).await;
}

/// Bytes that end a string, separate parts or start an escape are bytes like any other.
pub async fn ids_that_look_like_separators_are_kept_apart<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let separators = b"\0\n\r\t \"'%*:;,./\\|{}[]#_-?";
    let ids = separators.map(|byte| RecordId::from_bytes([byte; 32]));
    keeps_apart(&store, &ids).await;
}

/// Case folding and Unicode normalisation would merge two customers' keys.
pub async fn ids_that_differ_in_case_are_kept_apart<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let ids = [*b"abcdefghijklmnopqrstuvwxyzabcdef"; 2];
    let [lower, upper] = [ids[0], ids[1].map(|byte| byte.to_ascii_uppercase())];
    keeps_apart(&store, &[lower, upper].map(RecordId::from_bytes)).await;
}

/// An id that ended at its first zero byte would be its twin; one that was compared by its
/// prefix, all of them.
pub async fn ids_that_share_a_prefix_are_kept_apart<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let ids: Vec<_> = (0..31)
        .flat_map(|length| {
            let mut bytes = [0; 32];
            bytes[..length].fill(b'a');
            let mut twin = bytes;
            twin[31] = b'a';
            [bytes, twin].map(RecordId::from_bytes)
        })
        .collect();
    keeps_apart(&store, &ids).await;
}

/// No bit of an id is spare.
pub async fn ids_one_bit_apart_are_kept_apart<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let ids: Vec<_> = (0..256)
        .map(|bit| {
            let mut bytes = [0x55; 32];
            bytes[bit / 8] ^= 1 << (bit % 8);
            RecordId::from_bytes(bytes)
        })
        .collect();
    keeps_apart(&store, &ids).await;
}

/// Digests and fences are any bytes too.
pub async fn digests_and_fences_of_any_bytes_come_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for (number, byte) in (0..).zip([0, b'\n', 0x80, 0xff]) {
        let mut written = completed(1, vec![byte]);
        written.fingerprint.digest = [byte; 32];
        written.fence = Fence::from_bytes([byte; 16]);
        written.principal = PrincipalDigest::from_bytes([byte; 8]);
        store.round_trip(&id(number), &written).await;
    }
}
