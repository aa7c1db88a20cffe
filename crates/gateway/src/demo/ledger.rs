//! The payments API's own book: one line per charge, on the disk before the answer is given.
//!
//! It is the only witness of the demonstration. What was executed, and what was executed twice,
//! is counted here and never from what a client believes. A last line that a crash tore apart was
//! never acknowledged and does not count.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// The orders that the demonstration places begin with this; any other came by hand.
pub(crate) const DEMO_PREFIX: &str = "demo-";

/// One line of the book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Charge {
    pub(crate) id: String,
    pub(crate) order: String,
    pub(crate) amount_cents: u64,
    pub(crate) currency: String,
}

/// What a book says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effects {
    /// Charges of the demonstration's orders.
    pub(crate) executed: u64,
    /// Those whose order had been charged before.
    pub(crate) duplicates: u64,
    /// What those took, in cents.
    pub(crate) twice_cents: u64,
    /// Charges that somebody asked for by hand. Two keys for one order are fine there.
    pub(crate) by_hand: u64,
    /// Everything that was charged, in cents.
    pub(crate) total_cents: u64,
}

/// Counts charges as they are read or written.
#[derive(Debug, Default)]
struct Counter {
    /// The first charge of each order.
    charged: HashMap<Box<str>, Charge>,
    effects: Effects,
}

impl Counter {
    fn add(&mut self, charge: &Charge) {
        let effects = &mut self.effects;
        effects.total_cents = effects.total_cents.saturating_add(charge.amount_cents);
        let is_first = !self.charged.contains_key(charge.order.as_str());
        if is_first {
            let order = charge.order.as_str().into();
            self.charged.insert(order, charge.clone());
        }
        if !charge.order.starts_with(DEMO_PREFIX) {
            effects.by_hand += 1;
            return;
        }
        effects.executed += 1;
        if !is_first {
            effects.duplicates += 1;
            effects.twice_cents = effects.twice_cents.saturating_add(charge.amount_cents);
        }
    }
}

/// An open book. Its methods block for as long as the disk takes.
#[derive(Debug)]
pub(crate) struct Ledger {
    page: Mutex<Page>,
    counter: Mutex<Counter>,
}

#[derive(Debug)]
struct Page {
    file: File,
    whole_bytes: u64,
}

impl Ledger {
    /// Opens or begins a book. A torn last line is cut off, so that the next one is readable.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let (counter, whole_bytes) = count(&mut file)?;
        file.set_len(whole_bytes)?;
        file.seek(SeekFrom::Start(whole_bytes))?;
        Ok(Self {
            page: Mutex::new(Page { file, whole_bytes }),
            counter: Mutex::new(counter),
        })
    }

    /// Writes a charge; it is on the disk when this returns.
    pub(crate) fn append(&self, charge: &Charge) -> io::Result<()> {
        let mut line = serde_json::to_vec(charge)?;
        line.push(b'\n');
        lock(&self.page).append(&line)?;
        lock(&self.counter).add(charge);
        Ok(())
    }

    /// The first charge of an order.
    pub(crate) fn find(&self, order: &str) -> Option<Charge> {
        lock(&self.counter).charged.get(order).cloned()
    }

    /// What has happened so far.
    pub(crate) fn effects(&self) -> Effects {
        lock(&self.counter).effects
    }
}

impl Page {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let written = self
            .file
            .write_all(line)
            .and_then(|()| self.file.sync_data());
        if written.is_err() {
            // A half-written line would swallow the next one.
            self.file.set_len(self.whole_bytes)?;
            self.file.seek(SeekFrom::Start(self.whole_bytes))?;
            return written;
        }
        self.whole_bytes += line.len() as u64;
        Ok(())
    }
}

/// What the book on the disk says, read anew.
pub(crate) fn audit(path: &Path) -> io::Result<Effects> {
    let (counter, _) = count(&mut File::open(path)?)?;
    Ok(counter.effects)
}

/// Counts the whole lines, and how many bytes they are.
fn count(file: &mut File) -> io::Result<(Counter, u64)> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let (mut counter, mut whole_bytes) = (Counter::default(), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.last() != Some(&b'\n') {
            break;
        }
        counter.add(&serde_json::from_slice(line)?);
        whole_bytes += line.len() as u64;
    }
    Ok((counter, whole_bytes))
}

/// A panic elsewhere does not make a count wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(order: &str, amount_cents: u64) -> Charge {
        Charge {
            id: format!("pay_{order}"),
            order: order.into(),
            amount_cents,
            currency: "EUR".into(),
        }
    }

    #[test]
    fn a_second_charge_of_an_order_is_a_duplicate_and_costs_its_amount() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        let ledger = Ledger::open(&path).unwrap();
        for (order, cents) in [
            ("demo-1", 100),
            ("demo-2", 250),
            ("demo-1", 100),
            ("demo-1", 100),
        ] {
            ledger.append(&charge(order, cents)).unwrap();
        }
        let expected = Effects {
            executed: 4,
            duplicates: 2,
            twice_cents: 200,
            by_hand: 0,
            total_cents: 550,
        };
        assert_eq!(ledger.effects(), expected);
        assert_eq!(audit(&path).unwrap(), expected, "the disk agrees");
    }

    /// Somebody who tries it by hand may charge one order under two keys; that says nothing about
    /// the gateway.
    #[test]
    fn charges_by_hand_are_not_counted_against_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&folder.path().join("ledger.jsonl")).unwrap();
        ledger.append(&charge("mine-1", 5)).unwrap();
        ledger.append(&charge("mine-1", 5)).unwrap();
        let effects = ledger.effects();
        assert_eq!(
            (effects.executed, effects.duplicates, effects.by_hand),
            (0, 0, 2)
        );
    }

    #[test]
    fn a_torn_last_line_does_not_count_and_does_not_spoil_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        Ledger::open(&path)
            .unwrap()
            .append(&charge("demo-1", 100))
            .unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"{"id":"pay_demo-1","order":"dem"#)
            .unwrap();
        drop(file);
        assert_eq!(audit(&path).unwrap().executed, 1);

        Ledger::open(&path)
            .unwrap()
            .append(&charge("demo-2", 100))
            .unwrap();
        let effects = audit(&path).unwrap();
        assert_eq!((effects.executed, effects.duplicates), (2, 0));
    }

    #[test]
    fn a_damaged_line_in_the_middle_is_an_error_not_a_smaller_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        std::fs::write(&path, "{\"id\":\n{}\n").unwrap();
        assert!(audit(&path).is_err());
    }
}
