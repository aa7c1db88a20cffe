//! One request to DynamoDB: sent again while it is throttled, within a deadline, and sorted by
//! whether it may have written.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use onlyonce_store::StoreError;
use tokio::time::Instant;

/// The first pause of a throttled request, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_millis(800);

/// How often a read is sent again that was not answered: a connection that was closed while idle
/// is found out only so.
const READS_AGAIN: usize = 1;

/// What DynamoDB answers when it wants to be asked less, having done nothing.
const THROTTLES: [&str; 6] = [
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "Throttling",
    "TransactionConflictException",
    "LimitExceededException",
];

/// What a request does if it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// It writes, and a second one would not do the same as the first.
    Writes,
    /// It writes, and doing so twice is the same as once.
    WritesAgain,
}

/// A request that did not succeed.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    /// DynamoDB decided against it.
    Refused(E),
    /// Anything else.
    Store(StoreError),
}

/// What became of a request that failed.
enum Verdict {
    /// Refused, unchanged, and worth asking again.
    Throttled,
    /// It never left.
    NotSent,
    /// It left, and what became of it is not known.
    Unanswered,
    /// Refused for good.
    Refused,
}

/// Sends a request until it is answered or `patience` is over.
pub(crate) async fn call<T, E, Sent>(
    patience: Duration,
    effect: Effect,
    mut send: impl FnMut() -> Sent,
) -> Result<T, Failure<E>>
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    Sent: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    let deadline = Instant::now() + patience;
    let mut pause = PAUSE_MIN;
    let mut reads_again = READS_AGAIN;
    loop {
        let error = match send().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let again = match verdict(&error) {
            Verdict::Throttled => true,
            Verdict::Unanswered if effect != Effect::Writes && reads_again > 0 => {
                reads_again -= 1;
                true
            }
            Verdict::Unanswered | Verdict::NotSent => false,
            Verdict::Refused => {
                let SdkError::ServiceError(service) = error else {
                    return Err(Failure::Store(failed(&error, effect)));
                };
                return Err(Failure::Refused(service.into_err()));
            }
        };
        let wait = jittered(pause);
        if !again || Instant::now() + wait >= deadline {
            return Err(Failure::Store(failed(&error, effect)));
        }
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn verdict<E>(error: &SdkError<E, HttpResponse>) -> Verdict
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    if let SdkError::ServiceError(service) = error {
        return match service.err().code() {
            Some(code) if THROTTLES.contains(&code) => Verdict::Throttled,
            Some(_) if !service.raw().status().is_server_error() => Verdict::Refused,
            // DynamoDB names its refusals. What has no name came from something in between, such as
            // a proxy that waited for the answer for too long.
            Some(_) | None => Verdict::Unanswered,
        };
    }
    let never_sent = match error {
        SdkError::ConstructionFailure(_) => true,
        SdkError::DispatchFailure(failure) => failure
            .as_connector_error()
            .is_some_and(|error| never_connected(error)),
        // A timeout, an answer that is none, or whatever comes to be added.
        SdkError::TimeoutError(_) | SdkError::ResponseError(_) | _ => false,
    };
    if never_sent {
        Verdict::NotSent
    } else {
        Verdict::Unanswered
    }
}

/// Whether there was no connection to send on. Whatever else fails may have been sent.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let client = error.downcast_ref::<hyper_util::client::legacy::Error>();
        if client.is_some_and(hyper_util::client::legacy::Error::is_connect) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn failed<E>(error: &SdkError<E, HttpResponse>, effect: Effect) -> StoreError
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    let may_have_written = matches!(verdict(error), Verdict::Unanswered);
    if may_have_written && effect != Effect::Reads {
        StoreError::ambiguous(reason(error))
    } else {
        StoreError::unavailable(reason(error))
    }
}

/// What happened, in one line.
pub(crate) fn reason<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    if let SdkError::ServiceError(service) = error {
        return refusal(service.err());
    }
    let text = DisplayErrorContext(error).to_string();
    // What follows is the same once more, for programmers.
    let text = text.split(" (").next().unwrap_or_default();
    text.lines().collect::<Vec<_>>().join(" ")
}

/// What DynamoDB said, in one line.
pub(crate) fn refusal(error: &impl ProvideErrorMetadata) -> String {
    let code = error.code().unwrap_or("an error without a code");
    match error.message() {
        Some(message) => format!("{code}: {}", message.lines().collect::<Vec<_>>().join(" ")),
        None => code.into(),
    }
}

impl<E: ProvideErrorMetadata> Failure<E> {
    /// As the port has it: a refusal means that nothing was written.
    pub(crate) fn into_store_error(self, table: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Refused(error) if error.code() == Some("ResourceNotFoundException") => {
                StoreError::unavailable(format!("there is no table {table}"))
            }
            Self::Refused(error) => StoreError::unavailable(refusal(&error)),
        }
    }
}

/// Somewhere between half of it and all: callers that were throttled together come back apart.
fn jittered(pause: Duration) -> Duration {
    let part = random().map_or(u16::MAX, u16::from_ne_bytes);
    pause / 2 + pause * u32::from(part) / (2 * u32::from(u16::MAX))
}

/// Random bytes, for versions, tokens and jitter.
#[expect(
    clippy::disallowed_methods,
    reason = "a version must never return, also when a runtime's chance is replayed"
)]
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], StoreError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::unavailable(format!("no random bytes: {error}")))?;
    Ok(bytes)
}
