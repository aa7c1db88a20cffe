//! The scripts that run inside the server: one per operation, each one round trip.

use std::sync::LazyLock;

/// A script and the digest that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    digest: LazyLock<String>,
}

impl Script {
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)+) => {
        $(pub(crate) static $name: Script = Script {
            text: include_str!($file),
            digest: LazyLock::new(|| redis::Script::new(include_str!($file)).get_hash().to_owned()),
        };)+
    };
}

scripts! {
    SWAP = "lua/swap.lua";
    LOAD = "lua/load.lua";
    DUE = "lua/due.lua";
    LIST = "lua/list.lua";
    TIDY = "lua/tidy.lua";
    MARK = "lua/mark.lua";
    KEEP = "lua/keep.lua";
    CLOCK = "lua/clock.lua";
}
