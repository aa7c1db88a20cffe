//! What a server answers, in the few shapes that this store asks for.

use redis::{ServerError, Value};

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// There is none: a key that is not there.
    Nothing,
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Self>),
    Error(ServerError),
    /// A shape that was not asked for.
    Other,
}

impl From<Value> for Answer {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the driver may learn new shapes, and none of them was asked for"
    )]
    fn from(value: Value) -> Self {
        match value {
            Value::Nil => Self::Nothing,
            Value::Int(number) => Self::Number(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) => Self::Bytes(text.into_bytes()),
            Value::Array(values) => Self::List(values.into_iter().map(Self::from).collect()),
            Value::ServerError(error) => Self::Error(error),
            _ => Self::Other,
        }
    }
}

impl Answer {
    /// The text of a string or of a number.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
            Self::Number(number) => Some(number.to_string()),
            Self::Nothing | Self::List(_) | Self::Error(_) | Self::Other => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(parts) => Some(parts),
            Self::Nothing | Self::Number(_) | Self::Bytes(_) | Self::Error(_) | Self::Other => None,
        }
    }

    pub(crate) fn into_list(self) -> Option<Vec<Self>> {
        match self {
            Self::List(parts) => Some(parts),
            Self::Nothing | Self::Number(_) | Self::Bytes(_) | Self::Error(_) | Self::Other => None,
        }
    }

    /// What to say about an answer that no script gives.
    pub(crate) fn unexpected(&self) -> String {
        let kind = match self {
            Self::Nothing => "nothing",
            Self::Number(_) => "a number",
            Self::Bytes(_) => "a string",
            Self::List(_) => "a list",
            Self::Error(_) => "an error",
            Self::Other => "something else",
        };
        format!("the server answered with {kind}, which is not what was asked for")
    }
}
