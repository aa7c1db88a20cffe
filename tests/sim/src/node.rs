//! The processes: starting, crashing, stalling, draining.

use std::sync::{Arc, OnceLock};

use onlyonce_engine::{EngineBuilder, EngineConfig};
use std::time::Duration;

use crate::client::SimEngine;
use crate::executor::{Executor, Role, Spawned};
use crate::faults::Fault;
use crate::resolver::{SimObserver, SimResolver};
use crate::runtime::SimRuntime;
use crate::shape::CONFIG;
use crate::store::SimStore;
use crate::world::Sim;

/// How long a draining process waits for its works.
const GRACE: Duration = Duration::from_millis(200);

/// A stall under way.
#[derive(Debug, Clone, Copy)]
struct Stall {
    since_ms: u64,
    freezes: bool,
}

/// One process.
#[derive(Default)]
pub(crate) struct Node {
    engine: Arc<OnceLock<SimEngine>>,
    stall: Option<Stall>,
}

/// All processes.
pub(crate) struct Nodes {
    sim: Sim,
    nodes: Vec<Node>,
}

impl Nodes {
    pub(crate) fn new(sim: &Sim) -> Self {
        let count = sim.world().nodes.len();
        Self {
            sim: sim.clone(),
            nodes: (0..count).map(|_| Node::default()).collect(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether its tasks run.
    pub(crate) fn runs(&self, node: usize) -> bool {
        self.nodes[node].stall.is_none()
    }

    /// Its engine, if it is open.
    pub(crate) fn engine(&self, node: usize) -> Option<&SimEngine> {
        self.nodes[node].engine.get()
    }

    /// A process with an open engine, `first` if it is one.
    pub(crate) fn open(&self, first: usize) -> Option<(usize, &SimEngine)> {
        (0..self.count())
            .map(|step| (first + step) % self.count())
            .find_map(|node| Some((node, self.engine(node)?)))
    }

    pub(crate) fn all_open(&self) -> bool {
        self.nodes.iter().all(|node| node.engine.get().is_some())
    }

    /// Starts a process: opens an engine, however often that takes.
    pub(crate) fn start(&self, executor: &mut Executor, node: usize) {
        let sim = self.sim.clone();
        let slot = Arc::clone(&self.nodes[node].engine);
        let (epoch, cheap_reads, config) = {
            let world = sim.world();
            let config = EngineConfig {
                callers_work: world.shape.callers_work,
                ..CONFIG
            };
            (world.nodes[node].epoch, world.shape.cheap_reads, config)
        };
        let runtime = SimRuntime {
            sim: sim.clone(),
            node,
            epoch,
        };
        let store = SimStore {
            sim: sim.clone(),
            node,
            cheap_reads,
        };
        let boot = async move {
            loop {
                let policies = sim.world().shape.policies().clone();
                let (secret, previous) = sim.world().shape.secrets();
                let mut builder = EngineBuilder::new(store.clone(), runtime.clone());
                if let Some(previous) = previous {
                    builder = builder.previous_secret(previous.clone());
                }
                let builder = builder
                    .config(config)
                    .policies(policies)
                    .secret(secret.clone())
                    .observer(SimObserver(sim.clone()))
                    .resolver(SimResolver(sim.clone()));
                if let Ok(engine) = builder.open().await {
                    sim.world().nodes[node].open = true;
                    // Set once per start: the slot is new.
                    let _ = slot.set(engine);
                    return;
                }
                sim.sleep(40).await;
            }
        };
        executor.spawn(Spawned {
            node,
            role: Role::Chores,
            future: Box::pin(boot),
        });
    }

    /// Ends a process where it stands.
    pub(crate) fn kill(&mut self, executor: &mut Executor, node: usize) {
        self.resume(node);
        let mut world = self.sim.world();
        let now_ms = world.now_ms;
        let state = &mut world.nodes[node];
        state.epoch += 1;
        state.open = false;
        state.drained = false;
        state.hung = 0;
        world.table.crash(node, now_ms);
        world.note(6, || format!("node {node} is gone"));
        drop(world);
        executor.kill(node);
        self.nodes[node] = Node::default();
    }

    /// Stops a process's tasks, as a stopped process or a suspended machine does.
    pub(crate) fn stall(&mut self, node: usize, freezes: bool) {
        let mut world = self.sim.world();
        world.fault(if freezes {
            Fault::NodeFreeze
        } else {
            Fault::NodeStall
        });
        let since_ms = world.now_ms;
        self.nodes[node]
            .stall
            .get_or_insert(Stall { since_ms, freezes });
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self, node: usize) {
        if let Some(stall) = self.nodes[node].stall.take()
            && stall.freezes
        {
            let mut world = self.sim.world();
            let frozen_ms = world.now_ms - stall.since_ms;
            world.nodes[node].frozen_ms += frozen_ms;
        }
    }

    /// Drains a process; it is to be killed once it says that it is done.
    pub(crate) fn drain(&self, executor: &mut Executor, node: usize) {
        let Some(engine) = self.engine(node).cloned() else {
            return;
        };
        let sim = self.sim.clone();
        sim.world().fault(Fault::NodeDrain);
        let drain = async move {
            engine.drain(GRACE).await;
            sim.world().nodes[node].drained = true;
        };
        executor.spawn(Spawned {
            node,
            role: Role::Chores,
            future: Box::pin(drain),
        });
    }
}
