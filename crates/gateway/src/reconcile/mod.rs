//! Getting unknown outcomes known: asking (`probe`), and being told (`webhook`).
//!
//! Nothing here decides what becomes of a key: it gives the engine a verdict, and the rules do the
//! rest. Whatever is unclear is no verdict; it is logged and counted (`counts`).
//!
//! | to see | read |
//! |---|---|
//! | how a question is put and bounded | `probe` |
//! | how a webhook is checked, and finds its operation | `webhook` |
//! | what the upstream is told, so that it can say which operation it means | `names` |
//! | templates, signatures, and how answers are read | `onlyonce_http::reconcile` |

mod counts;
mod names;
mod probe;
mod webhook;

pub(crate) use counts::Counts;
pub(crate) use names::Names;
pub(crate) use probe::{Probes, credential};
pub(crate) use webhook::{Receiver, verifier};
