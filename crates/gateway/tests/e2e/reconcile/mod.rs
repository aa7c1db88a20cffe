//! Unknown outcomes get known: by asking, by being told, and through crashes in between.
//!
//! The provider here loses answers on purpose, and witnesses every payment that it makes.

mod crashes;
mod polling;
mod provider;
mod webhooks;
