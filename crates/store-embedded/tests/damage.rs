//! Folders that are damaged, half made, foreign or from the future. Whatever cannot be read is
//! an error; it is never "no row", because a row that is missing lets a request run twice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use common::*;
use onlyonce_store::{Filter, ListStore, Store, StoreError, Swap, Version};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore, OpenError};

const ROWS: u64 = 12;

fn try_open(folder: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(&EmbeddedOptions {
        segment_bytes_max: 2048,
        dead_bytes_max: u64::MAX,
        ..EmbeddedOptions::new(folder)
    })
}

/// A store with rows in several segments, closed. Its last segment has several frames.
async fn closed_store(folder: &Path) {
    let store = try_open(folder).unwrap();
    for number in 0..ROWS {
        let version = win(&store, &id(number), None, Some(&executing(9))).await;
        if number % 3 != 0 {
            let next = completed(9, 300);
            win(&store, &id(number), Some(version), Some(&next)).await;
        }
    }
}

/// Makes a closed store one that was killed: nobody noted where its log ends.
fn make_killed(folder: &Path) {
    fs::remove_file(folder.join("log/closed")).unwrap();
}

/// Every row is right, or says that it cannot be read.
async fn rows_are_right_or_corrupt(store: &EmbeddedStore) -> usize {
    let mut corrupt = 0;
    for number in 0..ROWS {
        let expected = if number % 3 == 0 {
            executing(9)
        } else {
            completed(9, 300)
        };
        match store.load(&id(number)).await {
            Ok(row) => assert_eq!(*row.expect("a row is missing").record, expected),
            Err(StoreError::Corrupt { .. }) => corrupt += 1,
            Err(error) => panic!("{error}"),
        }
    }
    corrupt
}

/// Bit rot, anywhere in any file of the log: the store refuses to open, or every row is there or
/// says that it is damaged.
#[tokio::test]
async fn a_flipped_byte_is_noticed_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    closed_store(&original).await;
    let (mut refused, mut corrupt, mut untouched) = (0, 0, 0);
    for file in fs::read_dir(original.join("log")).unwrap() {
        let file = file.unwrap().file_name();
        let length = fs::metadata(original.join("log").join(&file))
            .unwrap()
            .len();
        // A prime step, so that every field of every structure gets its turn.
        for at in (0..usize::try_from(length).unwrap()).step_by(7) {
            let damaged = folder.path().join("damaged");
            copy(&original, &damaged);
            let path = damaged.join("log").join(&file);
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, bytes).unwrap();
            match try_open(&damaged) {
                Err(OpenError::Damaged { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
                Ok(store) => match rows_are_right_or_corrupt(&store).await {
                    0 => untouched += 1,
                    _ => corrupt += 1,
                },
            }
            fs::remove_dir_all(&damaged).unwrap();
        }
    }
    assert!(
        refused > 0 && corrupt > 0 && untouched > 0,
        "{refused} {corrupt} {untouched}"
    );
}

/// A crash can cut the last frame anywhere. Then nobody was told of it, and the store opens with
/// everything before it. A cut in any other segment is damage.
#[tokio::test]
async fn a_log_cut_in_its_last_frame_opens_and_one_cut_elsewhere_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    closed_store(&original).await;
    make_killed(&original);
    let files = log_files(&original);
    let (last, others) = files.split_last().unwrap();
    let whole = fs::read(last).unwrap();
    // Frames begin with this; a body of the tests never has it.
    let last_frame = whole
        .windows(4)
        .rposition(|bytes| bytes == b"frm1")
        .unwrap();
    for cut in last_frame..whole.len() {
        let damaged = folder.path().join("damaged");
        copy(&original, &damaged);
        let path = damaged.join("log").join(last.file_name().unwrap());
        fs::write(&path, &whole[..cut]).unwrap();
        let store = try_open(&damaged).unwrap();
        for number in 0..ROWS - 1 {
            assert!(store.load(&id(number)).await.unwrap().is_some());
        }
        drop(store);
        fs::remove_dir_all(&damaged).unwrap();
    }
    let hint = |path: &Path| path.with_extension("hint");
    for file in others {
        for cut in [1, 44, 100, 1000] {
            let damaged = folder.path().join("damaged");
            copy(&original, &damaged);
            let path = damaged.join("log").join(file.file_name().unwrap());
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - cut.min(bytes.len())]).unwrap();
            let _ = fs::remove_file(hint(&path));
            let opened = try_open(&damaged);
            assert!(
                matches!(opened, Err(OpenError::Damaged { .. })),
                "{opened:?}"
            );
            fs::remove_dir_all(&damaged).unwrap();
        }
    }
}

/// A store that was closed has nothing that nobody was told of. Whatever its log misses, to the
/// byte or to the frame, was acknowledged, and would run again.
#[tokio::test]
async fn a_closed_store_whose_log_was_cut_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    closed_store(&original).await;
    // Also one that was opened since, and closed again without a write.
    drop(try_open(&original).unwrap());
    let last = log_files(&original).pop().unwrap();
    let whole = fs::read(&last).unwrap();
    for cut in 0..whole.len() {
        let damaged = folder.path().join("damaged");
        copy(&original, &damaged);
        let path = damaged.join("log").join(last.file_name().unwrap());
        fs::write(&path, &whole[..cut]).unwrap();
        let opened = try_open(&damaged);
        assert!(
            matches!(opened, Err(OpenError::Damaged { .. })),
            "{cut}: {opened:?}"
        );
        fs::remove_dir_all(&damaged).unwrap();
    }
    let mut with_zeros = whole;
    with_zeros.extend([0; 5000]);
    fs::write(&last, with_zeros).unwrap();
    assert!(try_open(&original).is_ok());
}

/// After a power cut the last frame may have holes where sectors did not reach the disk. It was
/// not acknowledged, so the store must open without it. The same frame with a flipped bit and no
/// hole may have been acknowledged, so the store must not.
#[tokio::test]
async fn a_last_frame_with_a_hole_is_torn_and_one_with_a_flipped_bit_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let store = open(&original);
    win(&store, &id(0), None, Some(&executing(9))).await;
    win(&store, &id(1), None, Some(&completed(9, 5000))).await;
    drop(store);
    make_killed(&original);
    let file = log_files(&original).pop().unwrap();
    let whole = fs::read(&file).unwrap();
    let mut with_hole = whole.clone();
    with_hole[1024..1536].fill(0);
    fs::write(&file, &with_hole).unwrap();
    let torn = folder.path().join("torn");
    copy(&original, &torn);
    let store = open(&torn);
    assert!(store.load(&id(0)).await.unwrap().is_some());
    assert!(store.load(&id(1)).await.unwrap().is_none());
    let mut flipped = whole;
    flipped[1200] ^= 4;
    fs::write(&file, &flipped).unwrap();
    let opened = try_open(&original);
    assert!(
        matches!(opened, Err(OpenError::Damaged { .. })),
        "{opened:?}"
    );
}

/// A store as a crash leaves it, with zeros ahead of the log's end: a first row of `filler` bytes,
/// and one in a last frame of several sectors. Gives the log's file, and where that frame is.
async fn crashed_store(folder: &Path, filler: usize) -> (PathBuf, Range<usize>) {
    let store = open(folder);
    win(&store, &id(0), None, Some(&completed(9, filler))).await;
    win(&store, &id(1), None, Some(&completed(9, 3000))).await;
    drop(store);
    make_killed(folder);
    let file = log_files(folder).pop().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let begin = bytes.windows(4).rposition(|bytes| bytes == b"frm1");
    let frame = begin.unwrap()..bytes.len();
    bytes.extend([0; 10_000]);
    fs::write(&file, bytes).unwrap();
    (file, frame)
}

/// A log is written ahead of its end with zeros, and a crash leaves them there.
#[tokio::test]
async fn zeros_after_the_last_frame_are_the_end_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    crashed_store(folder.path(), 10).await;
    let store = open(folder.path());
    for number in 0..2 {
        assert!(store.load(&id(number)).await.unwrap().is_some());
    }
}

/// Before zeros, too, any sectors of the last frame may be missing that was not acknowledged, and
/// one that is altered may have been acknowledged. Also where its header is in two sectors.
#[tokio::test]
async fn before_zeros_a_missing_sector_is_torn_and_a_flipped_bit_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let (_, first) = crashed_store(&folder.path().join("probe"), 100).await;
    for place in [10, 300, 485, 496, 511] {
        let original = folder.path().join(place.to_string());
        let filler = 100 + (place + 512 - first.start % 512) % 512;
        let (file, frame) = crashed_store(&original, filler).await;
        assert_eq!(frame.start % 512, place);
        let whole = fs::read(&file).unwrap();
        let altered = |bytes: &[u8]| {
            let altered = folder.path().join("altered");
            let _ = fs::remove_dir_all(&altered);
            copy(&original, &altered);
            let path = altered.join("log").join(file.file_name().unwrap());
            fs::write(path, bytes).unwrap();
            altered
        };
        let sectors = frame.start / 512..=(frame.end - 1) / 512;
        let count = sectors.clone().count();
        assert!(count > 3);
        // Every set of sectors that did not reach the disk.
        for missing in 1..1_u32 << count {
            let mut bytes = whole.clone();
            for (number, sector) in sectors.clone().enumerate() {
                let lost = (sector * 512).max(frame.start)..(sector * 512 + 512).min(frame.end);
                if (missing >> number) & 1 == 1 {
                    bytes[lost].fill(0);
                }
            }
            let store = open(&altered(&bytes));
            let there = (store.load(&id(0)).await, store.load(&id(1)).await);
            let there = (there.0.unwrap().is_some(), there.1.unwrap().is_some());
            assert_eq!(there, (true, false), "{place}: {missing:b}");
        }
        // Every length that a write may have had when it broke off, but for the last three.
        for cut in (frame.start + 1..frame.end - 3).step_by(7) {
            let mut bytes = whole.clone();
            bytes[cut..frame.end].fill(0);
            let store = open(&altered(&bytes));
            let there = (store.load(&id(0)).await, store.load(&id(1)).await);
            let there = (there.0.unwrap().is_some(), there.1.unwrap().is_some());
            assert_eq!(there, (true, false), "{place}: cut at {cut}");
        }
        for at in frame.step_by(5) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let opened = try_open(&altered(&bytes));
            let is_refused = matches!(opened, Err(OpenError::Damaged { .. }));
            assert!(is_refused, "{place}, byte {at}: {opened:?}");
        }
    }
}

/// Zeros are for a log that is being written: a file that is done with does not keep them.
#[tokio::test]
async fn a_log_has_zeros_ahead_of_its_end_only_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), 512 * 1024);
    win(&store, &id(0), None, Some(&executing(9))).await;
    let first = log_files(folder.path()).pop().unwrap();
    assert!(fs::metadata(&first).unwrap().len() > 200_000);
    for number in 1..4 {
        win(&store, &id(number), None, Some(&completed(9, 300_000))).await;
    }
    assert_ne!(fs::read(&first).unwrap().last(), Some(&0));
    let last = log_files(folder.path()).pop().unwrap();
    assert_eq!(fs::read(&last).unwrap().last(), Some(&0));
    drop(store);
    assert_ne!(fs::read(&last).unwrap().last(), Some(&0));
}

/// A frame that is lost in the middle looks like a torn one, except that others follow it.
#[tokio::test]
async fn a_hole_before_the_last_frame_is_damage_and_not_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    win(&store, &id(0), None, Some(&completed(9, 5000))).await;
    win(&store, &id(1), None, Some(&completed(9, 50))).await;
    win(&store, &id(2), None, Some(&completed(9, 50))).await;
    drop(store);
    let file = log_files(folder.path()).pop().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[512..2048].fill(0);
    fs::write(&file, &bytes).unwrap();
    let opened = try_open(folder.path());
    assert!(
        matches!(opened, Err(OpenError::Damaged { .. })),
        "{opened:?}"
    );
}

/// A row that cannot be read is an unknown outcome. It must show up wherever one looks, and an
/// operator must be able to remove it.
#[tokio::test]
async fn a_damaged_row_is_corrupt_everywhere_and_can_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let first = win(&store, &id(0), None, Some(&completed(9, 300))).await;
    win(&store, &id(1), None, Some(&completed(9, 300))).await;
    // Behind the store's back: a bit of the first row's body, and one of the second's header.
    let file = log_files(folder.path()).pop().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let frames: Vec<_> = (0..bytes.len() - 4)
        .filter(|at| bytes[*at..].starts_with(b"frm1"))
        .collect();
    bytes[frames[0] + 32 + 57 + 200] ^= 1;
    bytes[frames[1] + 32 + 6] ^= 1;
    fs::write(&file, &bytes).unwrap();

    let version = |result: Result<Option<_>, StoreError>| match result {
        Err(StoreError::Corrupt { version, .. }) => version,
        other => panic!("{other:?}"),
    };
    assert_eq!(version(store.load(&id(0)).await), first);
    let lost = store.swap(&id(0), None, Some(&executing(9))).await;
    assert!(matches!(lost, Err(StoreError::Corrupt { version, .. }) if version == first));
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(page.entries.len(), 2);
    assert!(page.entries.iter().all(|entry| entry.row.is_err()));

    let unreadable = version(store.load(&id(1)).await);
    assert_eq!(unreadable, Version(0));
    for (id, version) in [(id(0), first), (id(1), unreadable)] {
        let removed = store.swap(&id, Some(version), None).await.unwrap();
        assert!(matches!(removed, Swap::Won(_)));
        assert_eq!(store.load(&id).await.unwrap(), None);
    }
}

/// Whichever file is gone, in the middle or at either end, what it held was acknowledged.
#[tokio::test]
async fn a_missing_log_file_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    closed_store(&original).await;
    let files = log_files(&original);
    assert!(files.len() >= 3, "vacuous: {}", files.len());
    let all: Vec<_> = (0..files.len()).collect();
    let single = all.iter().map(|gone| vec![*gone]);
    let ends = [
        vec![0, 1],
        vec![files.len() - 2, files.len() - 1],
        all.clone(),
    ];
    for gone in single.chain(ends) {
        let damaged = folder.path().join("damaged");
        copy(&original, &damaged);
        for file in &gone {
            let path = damaged.join("log").join(files[*file].file_name().unwrap());
            fs::remove_file(path.with_extension("hint")).ok();
            fs::remove_file(path).unwrap();
        }
        let Err(error @ OpenError::Damaged { .. }) = try_open(&damaged) else {
            panic!("opened without {gone:?}");
        };
        assert!(error.to_string().contains("missing"), "{gone:?}: {error}");
        fs::remove_dir_all(&damaged).unwrap();
    }
}

/// What says where the log ends may itself be damaged: then nobody knows.
#[tokio::test]
async fn damaged_ends_of_the_log_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    closed_store(folder.path()).await;
    for name in ["oldest", "newest", "closed"] {
        let path = folder.path().join("log").join(name);
        let whole = fs::read(&path).unwrap();
        for content in [&b""[..], b"1", b"7 00000000\n", b"\xff\xff"] {
            fs::write(&path, content).unwrap();
            let opened = try_open(folder.path());
            assert!(
                matches!(opened, Err(OpenError::Damaged { .. })),
                "{opened:?}"
            );
        }
        fs::write(&path, whole).unwrap();
    }
    assert!(try_open(folder.path()).is_ok());
}

/// Turns a store into what the first version of the format wrote: no salt, and no notes about the
/// ends of the log.
fn make_first_version(folder: &Path) {
    for file in log_files(folder) {
        let mut bytes = fs::read(&file).unwrap();
        let salt: [u8; 4] = bytes[8..12].try_into().unwrap();
        assert_ne!(salt, [0; 4]);
        bytes[8..12].fill(0);
        let crc = crc32fast::hash(&bytes[..40]);
        bytes[40..44].copy_from_slice(&crc.to_be_bytes());
        let mut at = 44;
        while at + 32 <= bytes.len() {
            let payload = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
            for (byte, salt) in bytes[at + 28..at + 32].iter_mut().zip(salt) {
                *byte ^= salt;
            }
            at += 32 + payload as usize;
        }
        fs::write(&file, bytes).unwrap();
    }
    for name in ["oldest", "newest", "closed"] {
        fs::remove_file(folder.join("log").join(name)).unwrap();
    }
}

/// Every format that was written stays readable, also when a new segment follows an old one, and
/// from the first start on the ends of the log are known.
#[tokio::test]
async fn a_log_of_the_first_version_is_read_and_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    closed_store(folder.path()).await;
    make_first_version(folder.path());
    for hints in [true, false] {
        if !hints {
            for file in log_files(folder.path()) {
                let _ = fs::remove_file(file.with_extension("hint"));
            }
        }
        let store = try_open(folder.path()).unwrap();
        assert_eq!(rows_are_right_or_corrupt(&store).await, 0);
        win(
            &store,
            &id(100 + u64::from(hints)),
            None,
            Some(&executing(9)),
        )
        .await;
    }
    fs::remove_file(&log_files(folder.path())[0]).unwrap();
    assert!(matches!(
        try_open(folder.path()),
        Err(OpenError::Damaged { .. })
    ));
}

/// A body that looks like the beginning of a later frame, in a frame that a crash has cut. Whoever
/// can choose an answer must not be able to keep the store from opening.
#[tokio::test]
async fn an_answer_that_imitates_a_frame_does_not_turn_a_torn_end_into_damage() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    win(&store, &id(0), None, Some(&executing(9))).await;
    let mut imitation = b"frm1".to_vec();
    imitation.extend(8_u32.to_be_bytes());
    imitation.extend(1000_u64.to_be_bytes());
    imitation.extend(5_u64.to_be_bytes());
    imitation.extend(0_u32.to_be_bytes());
    imitation.extend(crc32fast::hash(&imitation).to_be_bytes());
    let body = imitation.repeat(20);
    win(&store, &id(1), None, Some(&answered(&body))).await;
    drop(store);
    make_killed(folder.path());
    let file = log_files(folder.path()).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let found = bytes.windows(32).filter(|window| *window == imitation);
    assert_eq!(found.count(), 20, "vacuous");
    fs::write(&file, &bytes[..bytes.len() - 10]).unwrap();
    let store = try_open(folder.path()).unwrap();
    assert!(store.load(&id(0)).await.unwrap().is_some());
    assert!(store.load(&id(1)).await.unwrap().is_none());
}

/// One row whose place cannot be read must not keep the disk full for ever, and must not turn
/// into "no row" either.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_row_in_the_oldest_file_does_not_stop_space_from_being_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), 2048);
    let kept = id(0);
    win(&store, &kept, None, Some(&completed(1 << 40, 300))).await;
    let oldest = log_files(folder.path()).remove(0);
    let mut bytes = fs::read(&oldest).unwrap();
    let at = bytes
        .windows(32)
        .position(|window| window == kept.as_bytes())
        .unwrap();
    bytes[at - 10] ^= 1;
    fs::write(&oldest, bytes).unwrap();
    for number in 1..2000 {
        let version = win(&store, &id(number), None, Some(&completed(1, 300))).await;
        win(&store, &id(number), Some(version), None).await;
        if !oldest.exists() {
            break;
        }
    }
    assert!(!oldest.exists(), "nothing was given back");
    let version = |result: Result<Option<_>, StoreError>| match result {
        Err(StoreError::Corrupt { version, .. }) => version,
        other => panic!("{other:?}"),
    };
    assert_eq!(version(store.load(&kept).await), Version(0));
    drop(store);
    let store = open_small(folder.path(), 2048);
    assert_eq!(version(store.load(&kept).await), Version(0));
    let removed = store.swap(&kept, Some(Version(0)), None).await.unwrap();
    assert!(matches!(removed, Swap::Won(_)));
    assert_eq!(store.load(&kept).await.unwrap(), None);
}

/// An older onlyonce that reads a newer folder as far as it understands it would lose rows.
#[test]
fn a_folder_of_a_newer_format_is_refused_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let format = folder.path().join("FORMAT");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, text.replace("format 1", "format 2")).unwrap();
    let Err(
        error @ OpenError::NewerFormat {
            found: 2, known: 1, ..
        },
    ) = try_open(folder.path())
    else {
        panic!("opened a newer format");
    };
    assert!(error.to_string().contains("upgrade onlyonce"), "{error}");
}

/// A wrong path in the configuration must not scatter files among somebody's photographs.
#[test]
fn a_folder_with_other_things_in_it_is_refused_and_left_alone() {
    for name in ["photographs", "log/access.log", "FORMAT"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "something else").unwrap();
        let opened = try_open(folder.path());
        assert!(
            matches!(opened, Err(OpenError::NotOurs { .. })),
            "{name}: {opened:?}"
        );
        assert!(path.exists());
        assert!(!folder.path().join("log/0000000001.log").exists());
    }
}

/// Responses and the secret are in there.
#[cfg(unix)]
#[tokio::test]
async fn what_is_made_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;

    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("not/there/yet");
    let store = open(&folder);
    store.secret([7; 32]).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("log")), 0o700);
    assert_eq!(mode(&folder.join("secret")), 0o600);
    assert_eq!(mode(&log_files(&folder)[0]), 0o600);
}

/// With another secret every key has another id, and every retry would run again.
#[tokio::test]
async fn a_damaged_secret_is_an_error_and_not_a_new_secret() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    assert_eq!(store.secret([1; 32]).await.unwrap(), [1; 32]);
    let path = folder.path().join("secret");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(store.secret([2; 32]).await.is_err());
    fs::write(&path, []).unwrap();
    assert!(store.secret([2; 32]).await.is_err());
}

/// Without its secret a folder's keys have other ids, and every retry would run again.
#[tokio::test]
async fn a_missing_secret_beside_rows_is_an_error_and_not_a_new_secret() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.secret([1; 32]).await.unwrap();
    let _ = store.swap(&id(1), None, Some(&released(9))).await.unwrap();
    drop(store);
    std::fs::remove_file(folder.path().join("secret")).unwrap();
    assert!(open(folder.path()).secret([2; 32]).await.is_err());
}

/// An answer of zeros, written together with a claim, must not make damage to the claim look like
/// a write that never finished: the claim would be forgotten and run again.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_zeros_does_not_excuse_a_flipped_bit_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let store = open(&original);
    win(&store, &id(1), None, Some(&executing(5))).await;
    let (claim, answer) = (executing(10), zeros(8192));
    let (claimed, answered) = (id(2), id(3));
    let (one, other) = tokio::join!(
        store.swap(&answered, None, Some(&answer)),
        store.swap(&claimed, None, Some(&claim)),
    );
    assert!(matches!((one, other), (Ok(Swap::Won(_)), Ok(Swap::Won(_)))));
    drop(store);
    let log = log_files(&original).pop().unwrap();
    let whole = fs::read(&log).unwrap();
    let place_of = |what: &[u8]| {
        let mut windows = whole.windows(what.len());
        windows.rposition(|window| window == what).unwrap()
    };
    // In the claim's body; in its header; in that of the answer; in that of the frame.
    let places = [
        place_of(claimed.as_bytes()) + 40,
        place_of(claimed.as_bytes()),
        place_of(answered.as_bytes()),
        place_of(b"frm1") + 10,
    ];
    for at in places {
        let altered = folder.path().join("altered");
        copy(&original, &altered);
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(altered.join("log").join(log.file_name().unwrap()), &bytes).unwrap();
        if let Ok(store) = try_open(&altered) {
            for id in [&claimed, &answered] {
                assert!(!matches!(store.load(id).await, Ok(None)), "forgotten: {at}");
            }
        }
        fs::remove_dir_all(&altered).unwrap();
    }
}

/// A log file that cannot be deleted stays the oldest. Deleting the ones behind it would leave a
/// gap, and the next start would take the folder for damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_fails_leaves_no_gap_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("store"), folder.path().join("aside"));
    let store = open_small(&path, 2048);
    let first = log_files(&path).remove(0);
    for number in 0..40 {
        let version = win(&store, &id(number), None, Some(&completed(1, 300))).await;
        win(&store, &id(number), Some(version), None).await;
        if number == 0 {
            // A folder in its place cannot be deleted as a file.
            fs::rename(&first, &aside).unwrap();
            fs::create_dir(&first).unwrap();
        }
    }
    for number in 100..400 {
        let version = win(&store, &id(number), None, Some(&completed(1, 300))).await;
        win(&store, &id(number), Some(version), None).await;
    }
    // Closing waits for whatever is being cleaned up.
    drop(store);
    fs::remove_dir(&first).unwrap();
    fs::rename(&aside, &first).unwrap();
    assert!(try_open(&path).is_ok());
}

/// A place of the disk that cannot be read keeps nothing else from being looked after.
#[tokio::test]
async fn a_row_that_cannot_be_read_does_not_keep_others_from_being_due() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), 2048);
    for number in 0..20 {
        win(&store, &id(number), None, Some(&completed(number, 300))).await;
    }
    let files = log_files(folder.path());
    assert!(files.len() > 3, "vacuous");
    // What is not in the file cannot be read from it.
    let cut = fs::File::options().write(true).open(&files[1]).unwrap();
    cut.set_len(44).unwrap();
    let due = store.due(at(1_000), 100).await.unwrap();
    assert!(due.len() > 10 && due.len() < 20, "{}", due.len());
    assert!(due.contains(&id(0)) && due.contains(&id(19)));
    assert_eq!(store.due(at(1_000), 100).await.unwrap(), due);
}
