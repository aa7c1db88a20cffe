//! The last word: for machines one JSON object, for people a table and a verdict.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::client::Traffic;
use super::paint::Paint;
use super::screen;
use super::tally::Side;
use super::view::{self, Moment};

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) traffic: Traffic,
    /// Counted from the books on the disk, after everything had ended.
    pub(crate) last: Moment,
}

impl Report {
    /// Whether the gateway kept its promise.
    pub(crate) fn kept(&self) -> bool {
        self.last.gateway.effects.duplicates == 0
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.kept() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Everything, as one object on one line.
    pub(crate) fn json(&self) -> Value {
        json!({
            "gateway": side(&self.last.gateway),
            "direct": side(&self.last.direct),
            "seconds": (self.last.elapsed.as_secs_f64() * 10.0).round() / 10.0,
            "seed": self.traffic.seed,
            "workers": self.traffic.workers,
            "rate": self.traffic.rate,
        })
    }

    /// The table and what it means.
    pub(crate) fn text(&self, kept_folder: Option<&Path>) -> String {
        let paint = Paint(screen::is_lively());
        let mut lines = view::table(&self.last, paint);
        lines.push(String::new());
        lines.extend(self.verdict(paint));
        lines.extend(self.remarks());
        if let Some(folder) = kept_folder {
            lines.push(format!(
                " Ledgers and store are kept in {}.",
                folder.display()
            ));
        }
        screen::lines(&lines)
    }

    fn verdict(&self, paint: Paint) -> [String; 2] {
        let (ours, theirs) = (&self.last.gateway.effects, &self.last.direct.effects);
        if self.kept() {
            let lost = view::euros(theirs.twice_cents);
            return [
                format!(
                    " {}",
                    paint.green("Through onlyonce nothing was charged twice.")
                ),
                format!(" Straight to the API, retries charged {lost} too much."),
            ];
        }
        let (duplicates, seed) = (ours.duplicates, self.traffic.seed);
        let loud = format!("DUPLICATE CHARGES THROUGH ONLYONCE: {duplicates}. THIS IS A BUG.");
        [
            format!(" {}", paint.red(&loud)),
            format!(
                " Please run it with `--seed {seed} --keep DIR` and report it with that folder."
            ),
        ]
    }

    /// What the table does not say, when there is something to say.
    fn remarks(&self) -> Vec<String> {
        let (counts, effects) = (&self.last.gateway.counts, &self.last.gateway.effects);
        let remarks = [
            (
                counts.unknown,
                "Orders through onlyonce with an unknown outcome",
            ),
            (counts.refused, "Orders that onlyonce refused"),
            (effects.by_hand, "Charges by hand, not counted above"),
        ];
        let said = remarks.iter().filter(|(number, _)| *number > 0);
        said.map(|(number, what)| format!(" {what}: {number}."))
            .collect()
    }
}

fn side(side: &Side) -> Value {
    let (counts, effects) = (&side.counts, &side.effects);
    let faults: Map<_, _> = counts
        .faults()
        .map(|(fault, count)| (fault.name().to_owned(), count.into()))
        .collect();
    json!({
        "asked": counts.asked,
        "executed": effects.executed,
        "replayed": counts.replayed,
        "duplicates": effects.duplicates,
        "charged_twice_cents": effects.twice_cents,
        "paid": counts.paid,
        "refused": counts.refused,
        "unknown": counts.unknown,
        "resolved": counts.resolved,
        "unanswered": counts.unanswered(),
        "requests": counts.requests,
        "by_hand": effects.by_hand,
        "latency_p50_us": counts.latency.percentile_us(50),
        "latency_p99_us": counts.latency.percentile_us(99),
        "faults": faults,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::ledger::Effects;
    use super::*;

    fn report(duplicates: u64) -> Report {
        let effects = Effects {
            executed: 9,
            duplicates,
            ..Effects::default()
        };
        Report {
            traffic: Traffic {
                seed: 1,
                workers: 8,
                rate: 50,
            },
            last: Moment {
                elapsed: Duration::from_millis(3049),
                gateway: Side {
                    effects,
                    ..Side::default()
                },
                direct: Side::default(),
            },
        }
    }

    #[test]
    fn the_object_has_the_promised_fields() {
        let json = report(0).json();
        for path in ["gateway", "direct"] {
            for field in [
                "asked",
                "executed",
                "replayed",
                "duplicates",
                "unknown",
                "resolved",
                "requests",
            ] {
                assert!(json[path][field].is_u64(), "{path}.{field}");
            }
            assert!(json[path]["faults"]["answer_lost"].is_u64());
        }
        assert_eq!(json["gateway"]["executed"], 9);
        assert_eq!(json["seconds"], 3.0);
    }

    #[test]
    fn a_duplicate_through_the_gateway_is_loud() {
        assert!(report(0).kept());
        let broken = report(1);
        assert!(!broken.kept());
        assert!(
            broken
                .text(None)
                .contains("DUPLICATE CHARGES THROUGH ONLYONCE: 1")
        );
    }
}
