//! The store's URL, `dynamodb://TABLE?region=…&endpoint=…`, and its limits.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::OpenError;

const SCHEME: &str = "dynamodb://";

/// What DynamoDB allows as a table's name.
const TABLE_CHARS_MIN: usize = 3;
const TABLE_CHARS_MAX: usize = 255;

/// Where the table is, who asks, and how long to try.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DynamoOptions {
    /// The table's name.
    pub table: String,
    /// The region. `None`: as the environment says (`AWS_REGION`, a profile, the machine).
    pub region: Option<String>,
    /// Where DynamoDB answers, if not at the region's own address.
    pub endpoint: Option<String>,
    /// Who asks. `None`: as the environment says (variables, a profile, a role of the machine,
    /// the container or a web identity).
    pub credentials: Option<DynamoCredentials>,
    /// How long an operation is tried in all while DynamoDB throttles it. Below the engine's
    /// `store_timeout`. Default: 4 seconds.
    pub deadline: Duration,
    /// How long one request may take. Default: 2 seconds.
    pub request_timeout: Duration,
    /// How long connecting may take. Default: 1 second.
    pub connect_timeout: Duration,
    /// The largest record. Default: 16 MiB.
    pub record_bytes_max: usize,
    /// How long after its deadline DynamoDB may delete a settled row that nobody swept.
    /// Default: 7 days.
    pub ttl_grace: Duration,
}

/// An access key, where the environment has none.
#[derive(Clone, PartialEq, Eq)]
pub struct DynamoCredentials {
    /// `AWS_ACCESS_KEY_ID`
    pub access_key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`
    pub secret_access_key: String,
}

impl fmt::Debug for DynamoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamoCredentials({})", self.access_key_id)
    }
}

impl DynamoOptions {
    /// A table, with every default.
    #[must_use]
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            region: None,
            endpoint: None,
            credentials: None,
            deadline: Duration::from_secs(4),
            request_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            record_bytes_max: 16 << 20,
            ttl_grace: Duration::from_secs(7 * 24 * 3600),
        }
    }

    /// From `dynamodb://TABLE?region=…&endpoint=…`.
    ///
    /// # Errors
    /// When it is not such a URL.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        // The URL itself is not repeated: somebody may have put a secret into it.
        parse(url).map_err(|reason| OpenError::Url {
            reason: reason.into(),
        })
    }

    /// The URL that means this table.
    #[must_use]
    pub fn url(&self) -> String {
        let region = self.region.iter().map(|region| ("region", region));
        let endpoint = self.endpoint.iter().map(|endpoint| ("endpoint", endpoint));
        let mut url = format!("{SCHEME}{}", self.table);
        for (index, (name, value)) in region.chain(endpoint).enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            let _ = write!(url, "{name}={value}");
        }
        url
    }
}

fn parse(url: &str) -> Result<DynamoOptions, String> {
    let rest = url
        .strip_prefix(SCHEME)
        .ok_or("it does not begin with dynamodb://")?;
    let (table, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut options = DynamoOptions::new(checked_table(table)?);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("`{pair}` has no value"))?;
        let value = unescaped(value).ok_or_else(|| format!("`{value}` is not well escaped"))?;
        match name {
            "region" => options.region = Some(checked_region(value)?),
            "endpoint" => options.endpoint = Some(checked_endpoint(value)?),
            _ => {
                return Err(format!(
                    "`{name}` is no setting; there are region and endpoint"
                ));
            }
        }
    }
    Ok(options)
}

fn checked_table(table: &str) -> Result<&str, String> {
    if table.is_empty() {
        return Err("it names no table".into());
    }
    if table.contains('@') {
        return Err("credentials do not belong in it: set AWS_ACCESS_KEY_ID".into());
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let lengths = TABLE_CHARS_MIN..=TABLE_CHARS_MAX;
    if !table.bytes().all(is_allowed) || !lengths.contains(&table.len()) {
        return Err(format!(
            "`{table}` cannot be a table: 3 to 255 letters, digits, `_`, `-` and `.`"
        ));
    }
    Ok(table)
}

fn checked_region(region: String) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if region.is_empty() || !region.bytes().all(is_allowed) {
        return Err(format!("`{region}` is no region; one is eu-central-1"));
    }
    Ok(region)
}

fn checked_endpoint(endpoint: String) -> Result<String, String> {
    let host = endpoint
        .strip_prefix("http://")
        .or_else(|| endpoint.strip_prefix("https://"));
    if endpoint.contains('@') {
        return Err("credentials do not belong in it: set AWS_ACCESS_KEY_ID".into());
    }
    match host {
        Some(host) if !host.is_empty() && !host.starts_with(['/', ':']) => Ok(endpoint),
        _ => Err(format!(
            "`{endpoint}` is no endpoint; one is http://127.0.0.1:8000"
        )),
    }
}

/// Takes `%3A` and the like back.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_table_region_and_endpoint() {
        let url = "dynamodb://my-keys?region=eu-central-1&endpoint=http://127.0.0.1:8000";
        let options = DynamoOptions::from_url(url).unwrap();
        assert_eq!(options.table, "my-keys");
        assert_eq!(options.region.as_deref(), Some("eu-central-1"));
        assert_eq!(options.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        assert_eq!(options.url(), url);
        let escaped = "dynamodb://my-keys?region=eu-central-1&endpoint=http%3A%2F%2F127.0.0.1:8000";
        assert_eq!(DynamoOptions::from_url(escaped).unwrap(), options);
        let bare = DynamoOptions::from_url("dynamodb://keys").unwrap();
        assert_eq!(bare, DynamoOptions::new("keys"));
    }

    #[test]
    fn a_bad_url_is_refused_in_one_line_that_says_why() {
        for (url, reason) in [
            ("dynamo://keys", "begin with dynamodb://"),
            ("dynamodb://", "names no table"),
            ("dynamodb://?region=eu-central-1", "names no table"),
            ("dynamodb://ab", "cannot be a table"),
            ("dynamodb://a/b/c", "cannot be a table"),
            ("dynamodb://AKIA:secret@keys", "credentials do not belong"),
            ("dynamodb://keys?region=", "is no region"),
            ("dynamodb://keys?region=eu central", "is no region"),
            ("dynamodb://keys?region", "has no value"),
            ("dynamodb://keys?endpoint=127.0.0.1:8000", "is no endpoint"),
            ("dynamodb://keys?endpoint=http://", "is no endpoint"),
            ("dynamodb://keys?endpoint=http%3", "not well escaped"),
            (
                "dynamodb://keys?regoin=eu-central-1",
                "`regoin` is no setting",
            ),
        ] {
            let error = DynamoOptions::from_url(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(
                error.contains("dynamodb://TABLE")
                    && !error.contains('\n')
                    && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let mut options = DynamoOptions::new("keys");
        options.credentials = Some(DynamoCredentials {
            access_key_id: "AKIA1".into(),
            secret_access_key: "hidden".into(),
        });
        let shown = format!("{options:?}");
        assert!(
            shown.contains("AKIA1") && !shown.contains("hidden"),
            "{shown}"
        );
    }
}
