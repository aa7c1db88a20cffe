//! One connection: two lanes, each with its fault.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::{Counts, Fault, Plan, Shared, Way};

/// Large enough to carry a small request or answer in one piece.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// How often a limited lane sends: often enough to look like a slow line, not like a stutter.
const SLICES_PER_SECOND: u32 = 50;

/// How a lane ends, when it does not simply end.
struct Reset;

/// Relays until both ways are over, or one is reset.
pub(super) async fn run(mut client: TcpStream, mut server: TcpStream, shared: &Shared) {
    // Small pieces must arrive as they were sent. A socket that refuses is one that is closed.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    shared.counts.send_modify(|counts| counts.connections += 1);
    let ended = {
        let (client_reader, client_writer) = client.split();
        let (server_reader, server_writer) = server.split();
        let up = Lane::new(Way::ToServer, client_reader, server_writer, shared);
        let down = Lane::new(Way::ToClient, server_reader, client_writer, shared);
        tokio::try_join!(up.run(), down.run())
    };
    if ended.is_err() {
        // With no time to linger, closing a socket is a reset.
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
    drop((client, server));
    shared.counts.send_modify(|counts| counts.ended += 1);
}

struct Lane<'a> {
    way: Way,
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    shared: &'a Shared,
    plan: watch::Receiver<Plan>,
    passed: u64,
    closed: bool,
}

impl<'a> Lane<'a> {
    fn new(way: Way, reader: ReadHalf<'a>, writer: WriteHalf<'a>, shared: &'a Shared) -> Self {
        Self {
            way,
            reader,
            writer,
            shared,
            plan: shared.plan.subscribe(),
            passed: 0,
            closed: false,
        }
    }

    /// The fault that holds now. Marks the plan as seen.
    fn fault(&mut self) -> Fault {
        self.plan.borrow_and_update().fault(self.way)
    }

    async fn run(mut self) -> Result<(), Reset> {
        let mut piece = vec![0; PIECE_BYTES_MAX];
        loop {
            let fault = self.fault();
            self.act_on_what_has_passed(fault).await?;
            if fault == Fault::Pause {
                self.changed().await;
                continue;
            }
            let read = tokio::select! {
                read = self.reader.read(&mut piece) => read,
                () = changed(&mut self.plan) => continue,
            };
            match read {
                Ok(0) => return self.end().await,
                Ok(bytes) => self.pass(&piece[..bytes]).await?,
                // The sender reset the connection, so the receiver sees a reset too.
                Err(_) => return Err(Reset),
            }
        }
    }

    /// Resets or closes a connection that has had its bytes.
    async fn act_on_what_has_passed(&mut self, fault: Fault) -> Result<(), Reset> {
        match fault {
            Fault::ResetAfter(bytes) if self.passed >= bytes => Err(self.reset()),
            Fault::CloseAfter(bytes) if self.passed >= bytes && !self.closed => {
                self.fired();
                self.once();
                self.close().await;
                Ok(())
            }
            Fault::ResetAfter(_)
            | Fault::CloseAfter(_)
            | Fault::Pass
            | Fault::Delay(_)
            | Fault::Blackhole
            | Fault::Pause
            | Fault::Cut
            | Fault::BytesPerSecond(_) => Ok(()),
        }
    }

    /// The sender has ended its stream.
    async fn end(mut self) -> Result<(), Reset> {
        // Whoever is behind a black hole does not learn of it either, until it is lifted.
        while matches!(self.fault(), Fault::Blackhole | Fault::Pause) {
            self.changed().await;
        }
        if !self.closed {
            self.close().await;
        }
        Ok(())
    }

    /// Passes a piece on, as the fault has it. A piece that is held meets the next plan.
    async fn pass(&mut self, mut piece: &[u8]) -> Result<(), Reset> {
        while !piece.is_empty() {
            let fault = self.fault();
            self.act_on_what_has_passed(fault).await?;
            let now = match fault {
                Fault::Pass => piece.len(),
                Fault::Delay(delay) => {
                    self.fired();
                    if self.interrupted(delay).await {
                        continue;
                    }
                    piece.len()
                }
                Fault::Blackhole => {
                    self.fired();
                    return Ok(());
                }
                Fault::Pause => {
                    self.fired();
                    self.changed().await;
                    continue;
                }
                Fault::Cut => return Err(self.reset()),
                Fault::ResetAfter(bytes) | Fault::CloseAfter(bytes) => {
                    let left = usize::try_from(bytes.saturating_sub(self.passed));
                    // What follows a close is thrown away.
                    if left == Ok(0) {
                        return Ok(());
                    }
                    piece.len().min(left.unwrap_or(usize::MAX))
                }
                Fault::BytesPerSecond(rate) => {
                    self.fired();
                    let slice = (rate / SLICES_PER_SECOND).max(1);
                    let bytes = piece
                        .len()
                        .min(usize::try_from(slice).unwrap_or(usize::MAX));
                    let sent = u32::try_from(bytes).unwrap_or(u32::MAX);
                    let pause = Duration::from_secs(1) * sent / rate.max(1);
                    if self.interrupted(pause).await {
                        continue;
                    }
                    bytes
                }
            };
            let (head, rest) = piece.split_at(now);
            self.send(head).await.map_err(|_| Reset)?;
            piece = rest;
        }
        let fault = self.fault();
        self.act_on_what_has_passed(fault).await
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        self.writer.write_all(bytes).await?;
        let sent = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        self.passed += sent;
        self.shared.counts.send_modify(|counts: &mut Counts| {
            *match self.way {
                Way::ToServer => &mut counts.bytes_to_server,
                Way::ToClient => &mut counts.bytes_to_client,
            } += sent;
        });
        Ok(())
    }

    async fn close(&mut self) {
        self.closed = true;
        // Fails when the receiver is gone, which closes this way as well.
        let _ = self.writer.shutdown().await;
    }

    fn reset(&self) -> Reset {
        self.fired();
        self.once();
        Reset
    }

    /// Mends a plan that was for one connection, before that connection's client can notice.
    fn once(&self) {
        self.shared.plan.send_if_modified(|plan| {
            let spent = plan.once;
            if spent {
                *plan = Plan::PASS;
            }
            spent
        });
    }

    fn fired(&self) {
        self.shared.fault_fired();
    }

    async fn changed(&mut self) {
        changed(&mut self.plan).await;
    }

    /// Waits; true when the plan changed meanwhile.
    async fn interrupted(&mut self, wait: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(wait) => false,
            () = self.changed() => true,
        }
    }
}

/// Waits for another plan. There is none when the proxy is gone, and this lane with it.
async fn changed(plan: &mut watch::Receiver<Plan>) {
    if plan.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
