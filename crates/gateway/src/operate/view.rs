//! Tables, facts and timelines as text.
//!
//! What the API gives may hold anything that a client or an API sent: control characters are
//! taken out, so that nothing moves the cursor or colours the screen.

use std::fmt::Write as _;

use serde_json::Value;

/// How much of an id tells it from others in a list, and is accepted where an id is asked for.
const ID_CHARS: usize = 16;

/// What stands in a column of a key's row.
type Cell = fn(&Value) -> String;

/// The columns of a list: what they are called, and what stands in them.
const COLUMNS: [(&str, Cell); 6] = [
    ("ID", |key| short(&text(key, "id"))),
    ("STATE", |key| text(key, "state")),
    ("ROUTE", |key| text(key, "route")),
    ("CHANGED (UTC)", |key| time(number(key, "updated_at_ms"))),
    ("ATTEMPT", |key| count(number(key, "attempt"))),
    ("ABOUT", about),
];

/// A page of keys.
pub(super) fn list(page: &Value) -> String {
    let keys = page.get("keys").and_then(Value::as_array);
    let keys = keys.map(Vec::as_slice).unwrap_or_default();
    let next = page.get("next").and_then(Value::as_str);
    if keys.is_empty() {
        return match next {
            None => "none".into(),
            // To say "none" here would be a guess.
            Some(next) => format!("none so far\n\nmore: --after {}", plain(next)),
        };
    }
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|key| COLUMNS.iter().map(|(_, cell)| cell(key)).collect())
        .collect();
    let mut lines = table(&COLUMNS.map(|(name, _)| name), &rows);
    if let Some(next) = next {
        let _ = write!(lines, "\n\nmore: --after {}", plain(next));
    }
    lines
}

/// What a search found; nothing may mean that it was not asked as the client asked.
pub(super) fn found(page: &Value, method: &str, path: &str) -> String {
    let keys = page.get("keys").and_then(Value::as_array);
    if keys.is_none_or(Vec::is_empty) {
        return format!(
            "none for {method} {} by this caller: give --method, --path and --caller as in the \
             client's request; one that sends several credentials is not found this way",
            plain(path)
        );
    }
    list(page)
}

/// One key: facts, response, timeline.
pub(super) fn key(key: &Value) -> String {
    let facts = [
        ("id", text(key, "id")),
        ("state", text(key, "state")),
        ("route", text(key, "route")),
        ("principal", text(key, "principal")),
        ("attempt", count(number(key, "attempt"))),
        ("execution", text(key, "execution")),
        ("created", time(number(key, "created_at_ms"))),
        ("changed", time(number(key, "updated_at_ms"))),
        ("next", time(number(key, "deadline_ms"))),
        ("unknown", about(key)),
        ("response", response(key.get("response"))),
    ];
    let mut lines = String::new();
    for (name, value) in facts {
        if !value.is_empty() {
            let _ = writeln!(lines, "{name:<10} {value}");
        }
    }
    let events = key.get("timeline").and_then(Value::as_array);
    let rows: Vec<Vec<String>> = events
        .into_iter()
        .flatten()
        .map(|event| {
            let said = |name| text(event, name);
            let at = time(number(event, "at_ms"));
            vec![at, said("what"), said("by"), said("detail")]
        })
        .collect();
    lines.push('\n');
    lines.push_str(&table(&["WHEN (UTC)", "WHAT", "BY", "DETAIL"], &rows));
    lines
}

/// What became of a decision.
pub(super) fn decided(answer: &Value) -> String {
    let decision = text(answer, "decision");
    match answer.get("key").filter(|key| !key.is_null()) {
        Some(key) => {
            let (id, state) = (short(&text(key, "id")), text(key, "state"));
            match key.get("unreadable").and_then(Value::as_str) {
                Some(why) => format!(
                    "{decision}: it is done, and what {id} is now could not be read: {}",
                    plain(why)
                ),
                None => format!("{decision}: {id} is {state} now"),
            }
        }
        None => format!("{decision}: the key is as if never used"),
    }
}

fn about(key: &Value) -> String {
    if let Some(why) = key.get("unreadable").and_then(Value::as_str) {
        return format!("unreadable: {}", plain(why));
    }
    let Some(unknown) = key.get("unknown").filter(|unknown| !unknown.is_null()) else {
        return String::new();
    };
    let asked = match number(unknown, "attempts").unwrap_or(0) {
        0 => "not asked yet".to_owned(),
        1 => "asked once".to_owned(),
        times => format!("asked {times} times"),
    };
    let since = time(number(unknown, "since_ms"));
    format!("{} since {since}, {asked}", text(unknown, "reason"))
}

fn response(response: Option<&Value>) -> String {
    let Some(response) = response.filter(|response| !response.is_null()) else {
        return String::new();
    };
    let bytes = number(response, "body_bytes").unwrap_or(0);
    match text(response, "kind").as_str() {
        "tombstone" => format!("none to replay ({})", text(response, "reason")),
        kind => {
            let status = number(response, "status");
            let status = status.map_or_else(|| kind.to_owned(), |status| status.to_string());
            let body = text(response, "body");
            let masked = response.get("masked").and_then(Value::as_bool);
            match (masked, body.is_empty()) {
                (Some(true), _) => format!("{status}, {bytes} bytes (masked)"),
                (_, true) => format!("{status}, {bytes} bytes"),
                (_, false) => format!("{status}, {bytes} bytes: {body}"),
            }
        }
    }
}

fn text(value: &Value, name: &str) -> String {
    plain(value.get(name).and_then(Value::as_str).unwrap_or_default())
}

fn number(value: &Value, name: &str) -> Option<u64> {
    value.get(name).and_then(Value::as_u64)
}

fn count(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

fn short(id: &str) -> String {
    id.chars().take(ID_CHARS).collect()
}

fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// `2026-11-16 03:43:41`, in UTC.
fn time(ms: Option<u64>) -> String {
    let Some(ms) = ms else {
        return String::new();
    };
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The date of a day counted from 1970-01-01, by counting from a year that begins in March, so
/// that the leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// Columns as wide as their widest cell; the last one is not padded.
fn table(names: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize, name: &str| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(name.len())
    };
    let widths: Vec<usize> = names
        .iter()
        .enumerate()
        .map(|(column, name)| width(column, name))
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let padded: Vec<String> = padded.collect();
        padded.join("  ").trim_end().to_owned()
    };
    let head = line(names.to_vec());
    let rows = rows
        .iter()
        .map(|row| line(row.iter().map(String::as_str).collect()));
    let lines: Vec<String> = std::iter::once(head).chain(rows).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dates_are_right_at_their_edges() {
        let at = |ms| time(Some(ms));
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_782_399_000), "2000-02-28 23:59:59");
        assert_eq!(at(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(at(1_709_251_200_000), "2024-03-01 00:00:00");
        assert_eq!(at(1_798_761_599_999), "2026-12-31 23:59:59");
        assert_eq!(at(4_107_542_400_000), "2100-03-01 00:00:00");
    }

    #[test]
    fn a_list_lines_up_and_says_where_it_goes_on() {
        let page = json!({"keys": [
            {"id": "00112233445566778899", "state": "dead_letter", "route": "payments",
             "updated_at_ms": 0, "attempt": 1,
             "unknown": {"reason": "no_complete_answer", "since_ms": 0, "attempts": 2}},
            {"id": "ff", "state": "unknown", "route": "p", "updated_at_ms": 0, "attempt": 12},
        ], "next": "abc"});
        let expected = "\
ID                STATE        ROUTE     CHANGED (UTC)        ATTEMPT  ABOUT
0011223344556677  dead_letter  payments  1970-01-01 00:00:00  1        no_complete_answer since 1970-01-01 00:00:00, asked 2 times
ff                unknown      p         1970-01-01 00:00:00  12

more: --after abc";
        assert_eq!(list(&page), expected);
    }

    /// The API may look for a while, find nothing, and say where to go on: whoever reads "none" would
    /// not go on.
    #[test]
    fn an_empty_page_that_goes_on_is_not_none() {
        assert_eq!(list(&json!({"keys": [], "next": null})), "none");
        let page = json!({"keys": [], "next": "abc"});
        assert_eq!(list(&page), "none so far\n\nmore: --after abc");
    }

    /// "As if never used" about a charge that was just called completed would be a reason to send it
    /// again.
    #[test]
    fn a_decision_whose_key_cannot_be_read_is_not_one_that_forgot_it() {
        let answer = |key| json!({"decision": "settled", "key": key});
        let seen = json!({"id": "aa", "state": "completed", "unreadable": null});
        assert_eq!(decided(&answer(seen)), "settled: aa is completed now");
        let forgotten = decided(&answer(Value::Null));
        assert_eq!(forgotten, "settled: the key is as if never used");
        let unseen = json!({"id": "aa", "state": "unreadable", "unreadable": "no answer"});
        assert_eq!(
            decided(&answer(unseen)),
            "settled: it is done, and what aa is now could not be read: no answer"
        );
    }

    /// A header or a reason may hold an escape sequence that rewrites the operator's screen.
    #[test]
    fn nothing_that_was_stored_controls_the_terminal() {
        let key_ = json!({"id": "aa", "route": "\u{1b}]0;owned\u{7}", "timeline": [
            {"at_ms": 0, "what": "resolved", "by": "operator:x", "detail": "a\r\nb\u{1b}[2J"}]});
        let shown = key(&key_);
        assert!(!shown.contains('\u{1b}') && !shown.contains('\r') && !shown.contains('\u{7}'));
    }
}
