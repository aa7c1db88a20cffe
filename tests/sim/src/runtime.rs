//! Time, tasks and chance for one process of the simulation.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use onlyonce_engine::Runtime;

use crate::bugs::Bug;
use crate::executor::{Role, Spawned};
use crate::world::Sim;

/// What an engine gets as its runtime.
#[derive(Clone)]
pub(crate) struct SimRuntime {
    pub(crate) sim: Sim,
    pub(crate) node: usize,
    pub(crate) epoch: u64,
}

impl Runtime for SimRuntime {
    fn elapsed(&self) -> Duration {
        let world = self.sim.world();
        let node = &world.nodes[self.node];
        Duration::from_millis(world.now_ms + node.offset_ms - node.frozen_ms)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        self.sim
            .sleep(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let spawned = Spawned {
            node: self.node,
            role: Role::Engine,
            future: Box::pin(task),
        };
        let mut world = self.sim.world();
        if world.nodes[self.node].epoch == self.epoch {
            world.spawned.push(spawned);
        } else {
            // Dropping a task takes the lock again.
            drop(world);
            drop(spawned);
        }
    }

    fn entropy<const N: usize>(&self) -> [u8; N] {
        let mut world = self.sim.world();
        let mut bytes = [7; N];
        if world.bug != Some(Bug::ConstantFences) {
            for part in bytes.chunks_mut(8) {
                part.copy_from_slice(&world.rng.next().to_le_bytes()[..part.len()]);
            }
        }
        bytes
    }
}

impl Sim {
    /// Waits until this much true time has passed.
    pub(crate) fn sleep(&self, millis: u64) -> Sleep {
        Sleep {
            sim: self.clone(),
            millis,
            timer: None,
        }
    }
}

/// Waits.
pub(crate) struct Sleep {
    sim: Sim,
    millis: u64,
    timer: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut world = self.sim.world();
        let timer = if let Some(timer) = self.timer {
            world.retime(timer, context.waker());
            timer
        } else {
            let at_ms = world.now_ms.saturating_add(self.millis);
            world.timer(at_ms, context.waker().clone())
        };
        let over = timer.0 <= world.now_ms;
        drop(world);
        self.timer = Some(timer);
        if over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.sim.world().cancel_timer(timer);
        }
    }
}
