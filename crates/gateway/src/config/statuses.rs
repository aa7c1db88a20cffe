//! `statuses = { "402" = "completed", "5xx" = "unknown", "400-499" = "not-stored" }`.
//!
//! A TOML table has no order, so the narrower entry wins: `404` over `400-499` over `4xx`. Two
//! entries that overlap without one lying within the other are refused.

use std::ops::RangeInclusive;

use onlyonce_http::{Settle, Statuses};

use super::field::{Field, Wrong, no_such_choice, quoted, text, wrong};
use super::raw::Value;

/// What a route says about statuses, over the defaults of its profile. Widest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StatusRules(Vec<(RangeInclusive<u16>, Settle)>);

impl StatusRules {
    /// The whole table, over that of the profile.
    pub(crate) fn table(&self, profile: Statuses) -> Statuses {
        let rules = self.0.iter().cloned();
        rules.fold(profile, |table, (range, settle)| table.set(range, settle))
    }

    /// The entries, widest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(RangeInclusive<u16>, Settle)> {
        self.0.iter()
    }
}

impl Field for StatusRules {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let Value::Table(table) = value else {
            return wrong(format!(
                "this is {}: write a table such as {{ \"402\" = \"completed\", \"5xx\" = \"unknown\" }}",
                value.kind()
            ));
        };
        let (mut rules, mut reasons) = (Vec::new(), Wrong::new());
        for entry in table.iter() {
            let rule = range(&entry.key).and_then(|range| Ok((range, settle(&entry.value)?)));
            match rule {
                Ok(rule) => rules.push(rule),
                Err(wrong) => reasons.extend(wrong),
            }
        }
        rules.sort_by_key(|(range, _)| (u16::MAX - (range.end() - range.start()), *range.start()));
        for (at, (first, _)) in rules.iter().enumerate() {
            let clash = rules
                .iter()
                .skip(at + 1)
                .find(|(second, _)| clashes(first, second));
            if let Some((second, _)) = clash {
                reasons.push(format!(
                    "{} and {} overlap and neither lies within the other: split one of them",
                    written(first),
                    written(second)
                ));
            }
        }
        if reasons.is_empty() {
            Ok(Self(rules))
        } else {
            Err(reasons)
        }
    }

    fn write(&self) -> Option<String> {
        let rules = self.0.iter().map(|(range, settle)| {
            format!("{} = {}", quoted(&written(range)), quoted(settle.as_str()))
        });
        let rules: Vec<_> = rules.collect();
        (!rules.is_empty()).then(|| format!("{{ {} }}", rules.join(", ")))
    }
}

fn clashes(first: &RangeInclusive<u16>, second: &RangeInclusive<u16>) -> bool {
    let overlap = first.start() <= second.end() && second.start() <= first.end();
    let within = |inner: &RangeInclusive<u16>, outer: &RangeInclusive<u16>| {
        outer.contains(inner.start()) && outer.contains(inner.end())
    };
    overlap && (first == second || !(within(first, second) || within(second, first)))
}

pub(super) fn written(range: &RangeInclusive<u16>) -> String {
    let (start, end) = (range.start(), range.end());
    if start == end {
        start.to_string()
    } else {
        format!("{start}-{end}")
    }
}

pub(super) fn range(key: &str) -> Result<RangeInclusive<u16>, Wrong> {
    let number = |text: &str| text.parse::<u16>().ok();
    let range = if let Some(hundred) = key.strip_suffix("xx") {
        number(hundred)
            .filter(|hundred| *hundred <= 9)
            .map(|hundred| hundred * 100..=hundred * 100 + 99)
    } else if let Some((start, end)) = key.split_once('-') {
        number(start)
            .zip(number(end))
            .map(|(start, end)| start..=end)
    } else {
        number(key).map(|status| status..=status)
    };
    let range = range.filter(|range| {
        *range.start() >= 200 && *range.end() <= 599 && range.start() <= range.end()
    });
    range.ok_or_else(|| {
        vec![format!(
            "\"{key}\" is no final status: write 200 to 599, as \"402\", \"400-499\" or \"5xx\""
        )]
    })
}

fn settle(value: &Value) -> Result<Settle, Wrong> {
    let name = text(value, "completed")?;
    match Settle::from_name(name) {
        Some(settle) => Ok(settle),
        None => no_such_choice(name, &["completed", "not-stored", "released", "unknown"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw;

    fn read(text: &str) -> Result<StatusRules, Wrong> {
        let entry = raw::parse(&format!("s = {text}"))
            .unwrap()
            .take("s")
            .unwrap();
        StatusRules::read(&entry.value)
    }

    /// Which entry wins must not depend on an order that TOML does not keep.
    #[test]
    fn the_narrower_entry_wins() {
        let text = "{ \"404\" = \"completed\", \"4xx\" = \"released\", \"400-409\" = \"unknown\" }";
        let rules = read(text).unwrap();
        let table = rules.table(Statuses::default());
        assert_eq!(table.of(404), Settle::Completed);
        assert_eq!(table.of(405), Settle::Unknown);
        assert_eq!(table.of(450), Settle::Released);
        assert_eq!(table.of(503), Settle::Released, "the profile's own");
        assert_eq!(read(&rules.write().unwrap()), Ok(rules));
    }

    #[test]
    fn what_is_no_status_no_outcome_or_ambiguous_is_refused() {
        let texts = [
            "{ \"100\" = \"completed\" }",
            "{ \"600\" = \"completed\" }",
            "{ \"6xx\" = \"completed\" }",
            "{ \"499-400\" = \"completed\" }",
            "{ \"abc\" = \"completed\" }",
            "{ \"402\" = \"complete\" }",
            "{ \"402\" = 1 }",
            "{ \"400-410\" = \"completed\", \"405-420\" = \"unknown\" }",
            "{ \"4xx\" = \"completed\", \"400-499\" = \"unknown\" }",
            "\"completed\"",
        ];
        for text in texts {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
