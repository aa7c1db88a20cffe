//! What people see, as lines of text: 80 columns, at most 24 rows, no terminal needed.

use std::net::SocketAddr;
use std::time::Duration;

use super::client::Traffic;
use super::paint::Paint;
use super::tally::Side;

const LABEL_COLUMNS: usize = 31;
const SIDE_COLUMNS: usize = 23;

/// Where everything listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) gateway: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) api: SocketAddr,
}

/// Both paths at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) elapsed: Duration,
    pub(crate) gateway: Side,
    pub(crate) direct: Side,
}

/// The whole screen.
pub(crate) fn screen(
    moment: &Moment,
    traffic: Traffic,
    addresses: &Addresses,
    note: &str,
    paint: Paint,
) -> Vec<String> {
    let seconds = moment.elapsed.as_secs();
    let Traffic { workers, rate, .. } = traffic;
    let clock = format!("{:02}:{:02}", seconds / 60, seconds % 60);
    let clients = format!("{workers} workers, {rate} orders/s");
    let title = paint.bold("onlyonce demo");
    let mut lines = vec![
        format!(" {title}   {clock}   {clients:<34}{note:>19}"),
        " Every order goes both ways over a bad network and is retried until answered.".into(),
        String::new(),
    ];
    lines.extend(table(moment, paint));
    lines.push(String::new());
    lines.extend(by_hand(addresses, paint));
    lines
}

/// The two columns.
pub(crate) fn table(moment: &Moment, paint: Paint) -> Vec<String> {
    let (ours, theirs) = (&moment.gateway, &moment.direct);
    let both = |label: &str, cell: &dyn Fn(&Side) -> String| row(label, &cell(ours), &cell(theirs));
    let duplicates = |side: &Side| {
        let number = side.effects.duplicates;
        paint.none_is_good(number, &padded(&grouped(number)))
    };
    let twice = |side: &Side| {
        let cents = side.effects.twice_cents;
        paint.none_is_good(cents, &padded(&euros(cents)))
    };
    let mut lines = vec![
        paint.bold(&row("", "through onlyonce", "straight to the API")),
        both("orders asked", &|side| grouped(side.counts.asked)),
        both("charges executed", &|side| grouped(side.effects.executed)),
        both("duplicate charges", &duplicates),
        both("charged twice", &twice),
        both("answers replayed", &|side| grouped(side.counts.replayed)),
        both("unknown outcomes resolved", &|side| {
            grouped(side.counts.resolved)
        }),
        both("orders without an answer", &|side| {
            grouped(side.counts.unanswered())
        }),
        both("latency p50 / p99, first tries", &latency),
        format!(" {}", paint.bold("what went wrong on the way")),
    ];
    for ((fault, through), (_, straight)) in ours.counts.faults().zip(theirs.counts.faults()) {
        lines.push(row(
            &format!("  {}", fault.label()),
            &grouped(through),
            &grouped(straight),
        ));
    }
    lines
}

/// Commands to copy.
fn by_hand(addresses: &Addresses, paint: Paint) -> Vec<String> {
    let (again, other) = (paint.bold("again:"), paint.bold("another amount:"));
    let mut lines: Vec<_> = curl(addresses.gateway, 990)
        .map(|line| format!(" {line}"))
        .into();
    lines.push(format!(
        "   {again} the first answer, replayed   {other} 422, nothing charged"
    ));
    lines.push(format!(
        " {} http://{}/   send order \"lost-1\" to see a dead letter",
        paint.bold("dashboard"),
        addresses.admin
    ));
    lines
}

/// The commands in full, for output that is read later.
pub(crate) fn commands(addresses: &Addresses) -> Vec<String> {
    let Addresses {
        gateway,
        admin,
        api,
    } = addresses;
    let mut lines = vec![
        format!(
            "gateway http://{gateway}   dashboard http://{admin}/   unprotected API http://{api}"
        ),
        "By hand: charged, then replayed, then refused (same key, another amount):".into(),
    ];
    for amount_cents in [990, 990, 991] {
        lines.extend(curl(*gateway, amount_cents).map(|line| format!("  {line}")));
    }
    lines.extend([
        "An order \"lost-1\" with a key of its own is never found: a dead letter, for you to decide:"
            .into(),
        format!("  onlyonce dlq list --admin http://{admin}"),
        "Ctrl-C ends it.".into(),
    ]);
    lines
}

fn curl(gateway: SocketAddr, amount_cents: u64) -> [String; 3] {
    let body = format!(r#"{{"order":"mine-1","amount_cents":{amount_cents},"currency":"EUR"}}"#);
    [
        format!("curl -i http://{gateway}/payments \\"),
        "  -H 'Idempotency-Key: mine-1' -H 'Content-Type: application/json' \\".into(),
        format!("  -d '{body}'"),
    ]
}

/// One line for output that is not a terminal.
pub(crate) fn plain_line(moment: &Moment) -> String {
    let side = |side: &Side| {
        format!(
            "asked {} executed {} replayed {} duplicates {}",
            side.counts.asked, side.effects.executed, side.counts.replayed, side.effects.duplicates
        )
    };
    let (ours, theirs) = (side(&moment.gateway), side(&moment.direct));
    format!(
        "{:>4} s  onlyonce: {ours}  |  direct: {theirs}",
        moment.elapsed.as_secs()
    )
}

/// A row. Cells that are painted were padded before.
fn row(label: &str, ours: &str, theirs: &str) -> String {
    format!(" {label:<LABEL_COLUMNS$}{ours:>SIDE_COLUMNS$}{theirs:>SIDE_COLUMNS$}")
}

fn padded(text: &str) -> String {
    format!("{text:>SIDE_COLUMNS$}")
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn euros(cents: u64) -> String {
    format!("{}.{:02} EUR", grouped(cents / 100), cents % 100)
}

fn latency(side: &Side) -> String {
    let ms = |percent| {
        let us = side.counts.latency.percentile_us(percent)?;
        Some(format!("{}.{}", us / 1000, us % 1000 / 100))
    };
    match (ms(50), ms(99)) {
        (Some(p50), Some(p99)) => format!("{p50} / {p99} ms"),
        (None, _) | (_, None) => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Effects;
    use super::*;

    fn moment() -> Moment {
        let mut direct = Side {
            effects: Effects {
                executed: 1_234_567,
                duplicates: 98_765,
                ..Effects::default()
            },
            ..Side::default()
        };
        direct.effects.twice_cents = 123_456_789;
        direct.counts.latency.add(Duration::from_millis(12));
        Moment {
            elapsed: Duration::from_secs(3725),
            gateway: Side::default(),
            direct,
        }
    }

    #[test]
    fn the_screen_fits_a_small_terminal_even_with_large_numbers() {
        let any = SocketAddr::from(([127, 0, 0, 1], 65535));
        let addresses = Addresses {
            gateway: any,
            admin: any,
            api: any,
        };
        let traffic = Traffic {
            seed: 1_000_000,
            workers: 256,
            rate: 1000,
        };
        let lines = screen(
            &moment(),
            traffic,
            &addresses,
            "Ctrl-C ends it",
            Paint(false),
        );
        assert!(lines.len() <= 24, "{} rows", lines.len());
        for line in &lines {
            assert!(
                line.chars().count() <= 80,
                "{} columns: {line}",
                line.chars().count()
            );
        }
    }

    #[test]
    fn colour_changes_nothing_but_the_colour() {
        let painted = table(&moment(), Paint(true)).join("\n");
        let mut stripped = painted.clone();
        for code in ["\x1b[1;31m", "\x1b[1;32m", "\x1b[1m", "\x1b[0m"] {
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, table(&moment(), Paint(false)).join("\n"));
        assert!(
            painted.contains("\x1b[1;31m                 98,765\x1b[0m"),
            "duplicates are red"
        );
        assert!(
            painted.contains("\x1b[1;32m                      0\x1b[0m"),
            "none is green"
        );
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(euros(123_456_705), "1,234,567.05 EUR");
    }
}
