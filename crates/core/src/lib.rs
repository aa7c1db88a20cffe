//! The rules of onlyonce, and nothing else: no clock, no entropy, no disk, no socket.
//!
//! A request's key ([`Key`]) and scope ([`Scope`]) give the id of its record ([`RecordId`]); its
//! payload gives a [`Fingerprint`]. What happens to the [`Record`] then is decided by one pure
//! function, [`step`], from the record, a [`Command`], the route's [`Policy`] and the time. Start
//! reading there.
//!
//! Entropy (fences, nonces, secrets) and time come in as arguments, so whatever is proven about
//! these rules by model checking and simulation holds for the code that ships.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod codec;
mod command;
mod fence;
pub mod fingerprint;
mod headers;
pub mod json;
pub mod key;
mod mac;
mod machine;
mod policy;
mod record;
mod route;
mod scope;
mod seal;
mod secret;
mod time;

pub use command::{Claim, Command, Decision, Next, Resolution, Verdict};
pub use fence::Fence;
pub use fingerprint::{FieldDigests, Fingerprint, FingerprintPolicy};
pub use headers::HeaderBlock;
pub use key::{Key, KeyLimits};
pub use machine::step;
pub use policy::{Expiry, Policy, PolicyBuilder, PolicyError, Reconcile, Reuse, Upstream};
pub use record::{
    Doubt, Record, Response, State, StateKind, StoredResponse, TombstoneReason, UnknownReason,
};
pub use route::RouteName;
pub use scope::{PrincipalDigest, RecordId, Scope, ScopeParts};
pub use seal::{Keyring, SealError, SealedResponse};
pub use secret::{KeyedHash, Purpose, Secret};
pub use time::Timestamp;
