//! What goes wrong on the way, decided before anything is sent.
//!
//! An order and its misfortunes follow from the seed and the order's number alone, so that both
//! paths get the same traffic and a run can be repeated.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::ledger::DEMO_PREFIX;

/// One order in this many meets a slow API.
const SLOW_ONE_IN: u64 = 10;

/// One order in this many is charged, and the API breaks off before it says so.
const BREAKS_ONE_IN: u64 = 25;

/// Orders by hand that begin with this are lost by the API.
const LOST_PREFIX: &str = "lost-";

/// Longer than any client's first patience, so that a slow charge is always retried.
const SLOW_MS: std::ops::Range<u64> = 350..600;

/// Charges by a card network in good health, scaled down to keep the demonstration lively.
const USUAL_MS: std::ops::Range<u64> = 4..24;

/// A way to lose an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection drops when the answer is there and before it is read.
    AnswerLost,
    /// The client's patience ends while the API is still at work. Not planned: it follows from
    /// how long the API takes.
    GaveUp,
    /// The connection drops in the middle of the request.
    CutOff,
    /// Two copies at once: a double click, or a proxy that retries.
    SentTwice,
    /// The API charges and breaks off without an answer. Not planned by the client: it follows
    /// from the order.
    BrokeOff,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::AnswerLost,
        Self::GaveUp,
        Self::CutOff,
        Self::SentTwice,
        Self::BrokeOff,
    ];

    /// Its name in reports for machines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AnswerLost => "answer_lost",
            Self::GaveUp => "gave_up",
            Self::CutOff => "cut_off",
            Self::SentTwice => "sent_twice",
            Self::BrokeOff => "broke_off",
        }
    }

    /// Its name for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::AnswerLost => "answer lost on its way",
            Self::GaveUp => "gave up, the API was slow",
            Self::CutOff => "cut off in mid-request",
            Self::SentTwice => "sent twice at once",
            Self::BrokeOff => "API broke off after charging",
        }
    }
}

/// One order, and what will happen to its first two tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) key: String,
    pub(crate) body: Bytes,
    first: Option<Fault>,
    second: Option<Fault>,
    jitter: u64,
}

impl Order {
    pub(crate) fn plan(seed: u64, number: u64) -> Self {
        let mut dice = Dice::new(seed, number);
        let key = uuid::Builder::from_random_bytes(dice.bytes())
            .into_uuid()
            .to_string();
        let body = json!({
            "order": format!("{DEMO_PREFIX}{seed}-{number:06}"),
            "amount_cents": dice.within(&(500..20_000)),
            "currency": "EUR",
        });
        Self {
            key,
            body: body.to_string().into(),
            // Far worse than a real network, so that a few seconds show what a year would.
            first: match dice.within(&(0..100)) {
                0..14 => Some(Fault::AnswerLost),
                14..24 => Some(Fault::SentTwice),
                24..32 => Some(Fault::CutOff),
                _ => None,
            },
            second: match dice.within(&(0..100)) {
                0..10 => Some(Fault::AnswerLost),
                10..14 => Some(Fault::CutOff),
                _ => None,
            },
            jitter: dice.next(),
        }
    }

    /// What happens to a try, counted from 0. Only the first two fail on purpose: every order
    /// has an answer in the end.
    pub(crate) fn fault(&self, attempt: u32) -> Option<Fault> {
        match attempt {
            0 => self.first,
            1 => self.second,
            _ => None,
        }
    }

    /// The pause after a try that brought nothing: doubled each time, up to a second, and spread
    /// so that clients do not come back in step.
    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let base_ms = (40_u64 << attempt.min(5)).min(1000);
        let spread_ms = self.jitter.rotate_left(attempt * 8) % base_ms;
        Duration::from_millis(base_ms / 2 + spread_ms)
    }
}

/// Whether the API breaks off without an answer when it charges an order for the first time.
pub(crate) fn api_breaks_off(order: &str) -> bool {
    order.starts_with(DEMO_PREFIX) && dice_of(order, 1).next().is_multiple_of(BREAKS_ONE_IN)
}

/// Whether the API breaks off before it charges: an order by hand that nobody will find.
pub(crate) fn api_loses(order: &str) -> bool {
    order.starts_with(LOST_PREFIX)
}

/// The dice of one order at the API.
fn dice_of(order: &str, stream: u64) -> Dice {
    // FNV-1a, folded into the dice.
    let hash = order
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    Dice::new(hash, stream)
}

/// How long the API takes over an order: the same at every try.
pub(crate) fn api_delay(order: &str) -> Duration {
    let mut dice = dice_of(order, 0);
    let slow = order.starts_with(DEMO_PREFIX) && dice.next().is_multiple_of(SLOW_ONE_IN);
    let range = if slow { SLOW_MS } else { USUAL_MS };
    Duration::from_millis(dice.within(&range))
}

/// A small repeatable generator (`SplitMix64`). Not for secrets.
struct Dice(u64);

impl Dice {
    fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed) ^ mix(stream.wrapping_add(0x5851_f42d_4c95_7f2d)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn within(&mut self, range: &std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    fn bytes(&mut self) -> [u8; 16] {
        let (high, low) = (self.next(), self.next());
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

/// The mixing step of `SplitMix64`. It is a bijection: different numbers stay different.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_orders_and_another_seed_others() {
        assert_eq!(Order::plan(7, 42), Order::plan(7, 42));
        assert_ne!(Order::plan(7, 42), Order::plan(8, 42));
        let keys: HashSet<_> = (0..1000).map(|number| Order::plan(7, number).key).collect();
        assert_eq!(keys.len(), 1000, "no key is used for two orders");
    }

    /// The shortest run that is promised to show a duplicate asks for well over a hundred orders.
    #[test]
    fn every_kind_of_fault_is_planned_within_the_first_hundred_orders_of_any_seed() {
        for seed in 0..50 {
            let planned: Vec<_> = (0..100)
                .filter_map(|number| Order::plan(seed, number).fault(0))
                .collect();
            for fault in [Fault::AnswerLost, Fault::CutOff, Fault::SentTwice] {
                assert!(planned.contains(&fault), "seed {seed} never has {fault:?}");
            }
        }
    }

    #[test]
    fn the_third_try_is_left_alone() {
        assert!((0..500).all(|number| Order::plan(1, number).fault(2).is_none()));
    }

    #[test]
    fn pauses_grow_and_stay_bounded() {
        let order = Order::plan(1, 1);
        for attempt in 0..40 {
            let pause = order.backoff(attempt);
            assert!(pause >= Duration::from_millis(20) && pause < Duration::from_millis(1500));
        }
    }

    #[test]
    fn orders_by_hand_never_meet_a_slow_api() {
        assert!((0..200).all(|n| api_delay(&format!("mine-{n}")) < Duration::from_millis(24)));
    }
}
