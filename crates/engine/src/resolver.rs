//! Who can tell whether an unknown effect happened.

use std::future::Future;
use std::pin::Pin;

use onlyonce_core::{Record, RecordId, Verdict};

/// Asks the effect's own side about an execution whose outcome is unknown.
///
/// The engine calls it for one key at a time, never from two places at once, with growing pauses,
/// until it gives a verdict other than [`Verdict::Pending`] or the policy's attempts are used up.
/// What "not found" then becomes is the policy's business
/// ([`Upstream`](onlyonce_core::Upstream)), not the resolver's.
pub trait Resolver: Send + Sync + 'static {
    /// Asks. Anything that goes wrong is [`Verdict::Pending`].
    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        record: &'a Record,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;
}

/// Nobody can tell: unknown outcomes become dead letters when the attempts are used up.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoResolver;

impl Resolver for NoResolver {
    fn resolve<'a>(
        &'a self,
        _: &'a RecordId,
        _: &'a Record,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(std::future::ready(Verdict::Pending))
    }
}
