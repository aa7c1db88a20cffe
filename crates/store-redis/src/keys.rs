//! What everything is called in the server, and which hash slot it is in.
//!
//! Ids are spread over a fixed number of shards by their first bits, so that the shards in order
//! are the ids in order. All keys of a shard share a hash tag, `{0}` to `{63}`, and with it a hash
//! slot: a script may touch a row and its indexes together, also in a cluster.

use onlyonce_core::RecordId;

/// How many shards there are. Part of the stored format. Enough that the largest clusters share
/// them out evenly, and few enough that asking each of them is cheap.
pub(crate) const SHARDS: u8 = 64;

/// What the stored format is called. Another one is refused.
pub(crate) const FORMAT: &str = "1";

/// The hash slots of a cluster.
const SLOTS: u16 = 16_384;

/// An id in hexadecimal digits.
const ID_CHARS: usize = 64;

/// One of the parts that rows are spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shard(u8);

impl Shard {
    /// Where what exists only once is kept: the clock, the secret, the format.
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn of(id: &RecordId) -> Self {
        let [first, ..] = id.as_bytes();
        Self(first / (u8::MAX / SHARDS + 1))
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..SHARDS).map(Self)
    }

    /// Itself and those after it.
    pub(crate) fn onwards(self) -> impl Iterator<Item = Self> {
        (self.0..SHARDS).map(Self)
    }

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// Its hash slot in a cluster.
    pub(crate) fn slot(self) -> u16 {
        crc16(self.0.to_string().as_bytes()) % SLOTS
    }
}

/// The names of one deployment's keys.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    fn named(&self, shard: Shard, name: &str) -> String {
        format!("{}:{{{}}}:{name}", self.prefix, shard.0)
    }

    /// What the keys of a shard's rows start with; the id follows.
    pub(crate) fn rows(&self, shard: Shard) -> String {
        self.named(shard, "r:")
    }

    pub(crate) fn row(&self, id: &RecordId) -> String {
        let mut key = self.rows(Shard::of(id));
        key.reserve(ID_CHARS);
        push_hex(&mut key, id);
        key
    }

    /// The ids by deadline.
    pub(crate) fn due(&self, shard: Shard) -> String {
        self.named(shard, "due")
    }

    /// The ids in their own order.
    pub(crate) fn ids(&self, shard: Shard) -> String {
        self.named(shard, "ids")
    }

    /// Written so that there is something to wait for.
    pub(crate) fn mark(&self, shard: Shard) -> String {
        self.named(shard, "mark")
    }

    pub(crate) fn clock(&self) -> String {
        self.named(Shard::FIRST, "clock")
    }

    pub(crate) fn secret(&self) -> String {
        self.named(Shard::FIRST, "secret")
    }

    pub(crate) fn format(&self) -> String {
        self.named(Shard::FIRST, "format")
    }

    /// For trying out at the start whether everything is permitted.
    pub(crate) fn probe(&self, shard: Shard, name: &str) -> String {
        self.named(shard, &format!("probe:{name}"))
    }
}

/// An id as it stands in keys and indexes.
pub(crate) fn hex(id: &RecordId) -> String {
    let mut text = String::with_capacity(ID_CHARS);
    push_hex(&mut text, id);
    text
}

fn push_hex(text: &mut String, id: &RecordId) {
    for byte in id.as_bytes() {
        let digit = |half: u8| char::from_digit(half.into(), 16);
        text.extend(digit(byte >> 4));
        text.extend(digit(byte & 0x0f));
    }
}

/// CRC-16/XMODEM, by which Redis Cluster chooses a slot.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ POLYNOMIAL
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The check value that the Redis Cluster specification gives.
    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    /// A list goes through the shards in order, and must meet the ids in order.
    #[test]
    fn shards_are_in_the_order_of_ids() {
        let shards: Vec<_> = (0..=255)
            .map(|byte| Shard::of(&RecordId::from_bytes([byte; 32])))
            .collect();
        assert!(shards.is_sorted());
        let distinct: HashSet<_> = shards.iter().map(|shard| shard.index()).collect();
        assert_eq!(distinct.len(), usize::from(SHARDS));
    }

    /// All in one slot would be all on one server.
    #[test]
    fn shards_are_spread_over_the_slots() {
        let slots: HashSet<_> = Shard::all().map(Shard::slot).collect();
        assert_eq!(slots.len(), usize::from(SHARDS));
        for third in 0..3_u16 {
            let range = third * 5461..(third + 1) * 5461 + third;
            let share = slots.iter().filter(|slot| range.contains(slot)).count();
            assert!(share > 12, "{share} of 64 in a third");
        }
    }

    #[test]
    fn keys_are_what_the_documentation_says() {
        let keys = Keys::new("onlyonce");
        let id = RecordId::from_bytes([0x1f; 32]);
        let row = format!("onlyonce:{{7}}:r:{}", "1f".repeat(32));
        assert_eq!(keys.row(&id), row);
        assert_eq!(keys.due(Shard::of(&id)), "onlyonce:{7}:due");
    }
}
