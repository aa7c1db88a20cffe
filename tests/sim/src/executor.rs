//! A single-threaded executor that lets chance choose who goes next.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use crate::faults::Fault;
use crate::world::Sim;

/// Whose task it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A caller of the engine: goes away when its client does.
    Handler,
    /// Spawned by the engine: goes away with its process only.
    Engine,
    /// Starting, draining, operating.
    Chores,
}

/// A task about to start.
pub(crate) struct Spawned {
    pub(crate) node: usize,
    pub(crate) role: Role,
    pub(crate) future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

struct Task {
    spawned: Spawned,
    flag: Arc<Flag>,
    waker: Waker,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The tasks of a schedule.
pub(crate) struct Executor {
    sim: Sim,
    tasks: Vec<Task>,
    ready: Vec<usize>,
}

/// What one turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Somebody did something.
    Busy,
    /// Nobody can do anything before time passes.
    Idle,
}

impl Executor {
    pub(crate) fn new(sim: Sim) -> Self {
        Self {
            sim,
            tasks: Vec::with_capacity(32),
            ready: Vec::with_capacity(32),
        }
    }

    pub(crate) fn spawn(&mut self, spawned: Spawned) {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        self.tasks.push(Task {
            spawned,
            flag,
            waker,
        });
    }

    /// Lets one of those who can go, go: a task of a process that `runs`, or an effect under way.
    pub(crate) fn turn(&mut self, runs: impl Fn(usize) -> bool) -> Turn {
        let mut world = self.sim.world();
        world.ring();
        self.ready.clear();
        let can_go = |task: &Task| task.flag.0.load(Ordering::Relaxed) && runs(task.spawned.node);
        self.ready
            .extend((0..self.tasks.len()).filter(|index| can_go(&self.tasks[*index])));
        let (tasks, effects) = (self.ready.len(), world.wires.due(world.now_ms));
        if tasks + effects == 0 {
            return Turn::Idle;
        }
        let choice = world.rng.index(tasks + effects);
        world.note(choice as u64, || {
            format!("turn {choice} of {tasks} tasks, {effects} effects")
        });
        if choice >= tasks {
            world.land(choice - tasks);
            drop(world);
        } else {
            drop(world);
            self.poll(self.ready[choice]);
        }
        self.adopt();
        Turn::Busy
    }

    fn poll(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        task.flag.0.store(false, Ordering::Relaxed);
        let mut context = Context::from_waker(&task.waker);
        if task.spawned.future.as_mut().poll(&mut context).is_ready() {
            self.tasks.swap_remove(index);
        }
    }

    /// Takes over what was spawned meanwhile.
    fn adopt(&mut self) {
        let spawned = std::mem::take(&mut self.sim.world().spawned);
        for spawned in spawned {
            self.spawn(spawned);
        }
    }

    /// How many callers wait for the engine.
    pub(crate) fn handlers(&self) -> usize {
        self.tasks
            .iter()
            .filter(|task| task.spawned.role == Role::Handler)
            .count()
    }

    /// Drops one caller, wherever it is.
    pub(crate) fn cancel_one(&mut self) {
        let handlers: Vec<_> = (0..self.tasks.len())
            .filter(|index| self.tasks[*index].spawned.role == Role::Handler)
            .collect();
        if handlers.is_empty() {
            return;
        }
        let mut world = self.sim.world();
        let victim = handlers[world.rng.index(handlers.len())];
        world.fault(Fault::ClientCancel);
        drop(world);
        drop(self.tasks.swap_remove(victim));
        self.adopt();
    }

    /// Drops everything that a process did. Its epoch must be over, so that it starts nothing.
    pub(crate) fn kill(&mut self, node: usize) {
        let dead: Vec<_> = self
            .tasks
            .extract_if(.., |task| task.spawned.node == node)
            .collect();
        drop(dead);
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        let all = std::mem::take(&mut self.tasks);
        drop(all);
    }
}
