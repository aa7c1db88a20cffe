//! What is under way between a process and the store, or the upstream.
//!
//! Sending, taking effect and answering are three moments. A caller that goes away after the
//! first does not stop the second, and a caller that hears nothing knows nothing about it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{Row, StoreError, Swap, Version};

use crate::faults::{AnswerPlan, Failure, Plan};
use crate::upstream::{Dispatch, Upstreams};
use crate::world::{Sim, World};

/// What is asked.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "moved twice and gone")]
pub(crate) enum Ask {
    Load(RecordId),
    Swap {
        id: RecordId,
        expected: Option<Version>,
        next: Option<Record>,
        /// Decided when it was sent, where that is the planted bug.
        checked: Option<bool>,
    },
    Due(Timestamp, usize),
    Now,
    Dispatch(Dispatch),
}

/// What is answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Load(Result<Option<Row>, StoreError>),
    Swap(Result<Swap, StoreError>),
    Due(Result<Vec<RecordId>, StoreError>),
    Now(Result<Timestamp, StoreError>),
    Dispatch(Upstreams),
    /// The store failed, whatever it was asked.
    Failed(Failure),
}

#[derive(Debug)]
struct Wire {
    serial: u64,
    node: usize,
    ask: Option<Ask>,
    effect_at_ms: Option<u64>,
    answer: AnswerPlan,
    answer_at_ms: Option<u64>,
    answered: Option<Answer>,
    waker: Option<Waker>,
    caller_gone: bool,
}

/// Everything that is under way.
#[derive(Debug, Default)]
pub(crate) struct Wires(Vec<Wire>);

impl Wires {
    fn find(&mut self, serial: u64) -> Option<(usize, &mut Wire)> {
        self.0
            .iter_mut()
            .enumerate()
            .find(|(_, wire)| wire.serial == serial)
    }

    /// How many effects are due.
    pub(crate) fn due(&self, now_ms: u64) -> usize {
        let due = |wire: &&Wire| wire.effect_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        self.0.iter().filter(due).count()
    }

    /// Whether anything is on its way to the upstream.
    pub(crate) fn dispatching(&self) -> bool {
        self.0
            .iter()
            .any(|wire| matches!(wire.ask, Some(Ask::Dispatch(_))))
    }

    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.0
            .iter()
            .flat_map(|wire| [wire.effect_at_ms, wire.answer_at_ms])
            .flatten()
            .min()
    }

    /// Wakes those whose answer has come.
    pub(crate) fn ring(&mut self, now_ms: u64) {
        for wire in &mut self.0 {
            if wire.answer_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                wire.answer_at_ms = None;
                if let AnswerPlan::Error(failure, _) = wire.answer {
                    wire.answered = Some(Answer::Failed(failure));
                }
                if let Some(waker) = wire.waker.take() {
                    waker.wake();
                }
            }
        }
    }

    fn remove_if_over(&mut self, index: usize) {
        let wire = &self.0[index];
        if wire.caller_gone && wire.effect_at_ms.is_none() {
            self.0.swap_remove(index);
        }
    }
}

impl World {
    fn send(&mut self, node: usize, ask: Ask, plan: Plan) -> u64 {
        if let Some(fault) = plan.fault {
            self.fault(fault);
        }
        let serial = self.serial();
        let after = |delay_ms| self.now_ms + delay_ms;
        let answer_at_ms = match plan.answer {
            AnswerPlan::Error(_, delay_ms) => Some(after(delay_ms)),
            AnswerPlan::Effect(_) | AnswerPlan::Never => None,
        };
        self.wires.0.push(Wire {
            serial,
            node,
            effect_at_ms: plan.effect_ms.map(after),
            ask: plan.effect_ms.map(|_| ask),
            answer: plan.answer,
            answer_at_ms,
            answered: None,
            waker: None,
            caller_gone: false,
        });
        serial
    }

    /// Lets the `nth` effect that is due happen.
    pub(crate) fn land(&mut self, nth: usize) {
        let now_ms = self.now_ms;
        let due = |(_, wire): &(usize, &Wire)| wire.effect_at_ms.is_some_and(|at| at <= now_ms);
        let Some((index, _)) = self.wires.0.iter().enumerate().filter(due).nth(nth) else {
            return;
        };
        let wire = &mut self.wires.0[index];
        wire.effect_at_ms = None;
        let (node, gone) = (wire.node, wire.caller_gone);
        let Some(ask) = wire.ask.take() else {
            return;
        };
        let answer = self.perform(node, gone, ask);
        let wire = &mut self.wires.0[index];
        if let AnswerPlan::Effect(delay_ms) = wire.answer {
            wire.answered = Some(answer);
            wire.answer_at_ms = Some(now_ms + delay_ms);
        }
        self.wires.remove_if_over(index);
    }

    fn hear(&mut self, serial: u64, waker: &Waker) -> Poll<Answer> {
        let Some((index, wire)) = self.wires.find(serial) else {
            return Poll::Pending;
        };
        if wire.answer_at_ms.is_none()
            && let Some(answer) = wire.answered.take()
        {
            wire.caller_gone = true;
            self.wires.remove_if_over(index);
            return Poll::Ready(answer);
        }
        wire.waker = Some(waker.clone());
        Poll::Pending
    }

    /// The caller is gone. What was sent may or may not arrive.
    fn hang_up(&mut self, serial: u64) {
        let arrives = !self.rng.once_in(3);
        let Some((index, wire)) = self.wires.find(serial) else {
            return;
        };
        wire.caller_gone = true;
        wire.answer_at_ms = None;
        wire.waker = None;
        if !arrives {
            wire.effect_at_ms = None;
            wire.ask = None;
        }
        self.wires.remove_if_over(index);
    }
}

/// Waits for an answer.
pub(crate) struct Call {
    sim: Sim,
    serial: u64,
    over: bool,
}

impl Call {
    pub(crate) fn send(sim: &Sim, world: &mut World, node: usize, ask: Ask, plan: Plan) -> Self {
        Self {
            sim: sim.clone(),
            serial: world.send(node, ask, plan),
            over: false,
        }
    }
}

impl Future for Call {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let answer = self.sim.world().hear(self.serial, context.waker());
        self.over = answer.is_ready();
        answer
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.over {
            self.sim.world().hang_up(self.serial);
        }
    }
}
