//! What goes wrong between a client and its server.

use std::time::Duration;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to the bytes that go one way.
///
/// Byte counts are those of one connection since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing: they pass.
    #[default]
    Pass,
    /// Every piece is held for this long.
    Delay(Duration),
    /// They are read and thrown away, the end of the stream included: a half-open connection.
    Blackhole,
    /// They are not read: whoever sends will block once the buffers are full. What was held
    /// goes on when the fault is changed.
    Pause,
    /// So many pass, and as soon as they have the connection is reset on both sides (RST).
    /// Zero resets every connection at once.
    ResetAfter(u64),
    /// So many pass, then the receiver sees the end of the stream while the other way goes on.
    CloseAfter(u64),
    /// The first bytes are swallowed, and the connection is reset. Towards the client: the
    /// server has executed and answered, and nobody will ever know.
    Cut,
    /// At most so many bytes pass in a second.
    BytesPerSecond(u32),
}

/// What goes wrong with every connection, those already open included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    /// To what the client sends.
    pub to_server: Fault,
    /// To what the server sends.
    pub to_client: Fault,
    /// Whether nothing listens on the proxy's port: connecting fails (ECONNREFUSED).
    pub refuse: bool,
    /// Whether everything passes again once a connection was reset or closed by this plan, so
    /// that a client's next attempt gets through.
    pub once: bool,
}

impl Plan {
    /// Everything passes.
    pub const PASS: Self = Self {
        to_server: Fault::Pass,
        to_client: Fault::Pass,
        refuse: false,
        once: false,
    };

    /// Nobody can connect any more. Open connections go on.
    #[must_use]
    pub const fn refuse() -> Self {
        Self {
            refuse: true,
            ..Self::PASS
        }
    }

    /// This goes wrong with what the client sends.
    #[must_use]
    pub const fn to_server(fault: Fault) -> Self {
        Self {
            to_server: fault,
            ..Self::PASS
        }
    }

    /// This goes wrong with what the server sends.
    #[must_use]
    pub const fn to_client(fault: Fault) -> Self {
        Self {
            to_client: fault,
            ..Self::PASS
        }
    }

    /// This goes wrong both ways.
    #[must_use]
    pub const fn both(fault: Fault) -> Self {
        Self {
            to_server: fault,
            to_client: fault,
            ..Self::PASS
        }
    }

    /// The request arrives, the answer does not: the client sees a reset instead.
    #[must_use]
    pub const fn cut_the_answer() -> Self {
        Self::to_client(Fault::Cut)
    }

    /// The same plan for one connection only; see [`once`](Self::once).
    #[must_use]
    pub const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// The fault of one way.
    #[must_use]
    pub const fn fault(&self, way: Way) -> Fault {
        match way {
            Way::ToServer => self.to_server,
            Way::ToClient => self.to_client,
        }
    }
}
