//! The limit: an append-only file, one writer, group commit with fdatasync, and nothing else.
//! Zeros are written ahead of its end, as the store does: a file that does not grow syncs faster.
//!
//! Driven by the same callers through the same kind of queue as the store, so the difference
//! between the two is what the store itself costs.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onlyonce_core::RecordId;
use tokio::sync::{mpsc, oneshot};

/// How far the file is written ahead of its end.
const ZEROS_BYTES: usize = 256 * 1024;

/// A log that is durable and cannot be read back.
#[derive(Clone)]
pub(crate) struct RawLog {
    queue: mpsc::Sender<Append>,
}

struct Append {
    id: RecordId,
    bytes: Vec<u8>,
    done: oneshot::Sender<()>,
}

impl RawLog {
    pub(crate) fn open(folder: &Path) -> Self {
        let file = File::create(folder.join("raw.log")).unwrap();
        let (queue, appends) = mpsc::channel(4096);
        std::thread::spawn(move || write(&file, appends));
        Self { queue }
    }

    pub(crate) async fn append(&self, id: RecordId, bytes: Vec<u8>) {
        let (done, synced) = oneshot::channel();
        assert!(
            self.queue.send(Append { id, bytes, done }).await.is_ok(),
            "the writer is gone"
        );
        synced.await.unwrap();
    }
}

fn write(file: &File, mut appends: mpsc::Receiver<Append>) {
    let mut index = HashMap::new();
    let (mut batch, mut buffer, mut end) = (Vec::new(), Vec::new(), 0_u64);
    let (zeros, mut zeros_until) = (vec![0; ZEROS_BYTES], 0);
    while appends.blocking_recv_many(&mut batch, 1024) > 0 {
        for append in &batch {
            index.insert(append.id, (end, append.bytes.len()));
            end += append.bytes.len() as u64;
            buffer.extend_from_slice(&append.bytes);
        }
        let begin = end - buffer.len() as u64;
        file.write_all_at(&buffer, begin).unwrap();
        if end > zeros_until {
            file.write_all_at(&zeros, end).unwrap();
            zeros_until = end + ZEROS_BYTES as u64;
        }
        file.sync_data().unwrap();
        buffer.clear();
        for append in batch.drain(..) {
            let _ = append.done.send(());
        }
    }
}
