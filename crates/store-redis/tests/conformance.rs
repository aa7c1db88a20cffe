//! The conformance suite, on a server that syncs before it answers.

mod common;

use common::Server;

onlyonce_conformance::store_suite!(Server::start());
