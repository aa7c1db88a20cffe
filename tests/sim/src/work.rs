//! What the engine is asked to run: one call to the upstream, in every way that it can go.

use onlyonce_core::{StoredResponse, TombstoneReason, UnknownReason};
use onlyonce_engine::{Execution, Finished, Outcome};

use crate::bugs::Bug;
use crate::client::Asked;
use crate::faults::{AnswerPlan, Fault, Plan};
use crate::rng::Rng;
use crate::shape::{LEASE_MS, Truth};
use crate::upstream::{CALL, Dispatch, Upstreams};
use crate::wire::{Answer, Ask, Call};
use crate::world::{Sim, World};

/// How one work goes.
#[derive(Debug, Clone, Copy)]
struct Course {
    before_ms: u64,
    after_ms: u64,
    /// How long the request travels.
    travel_ms: u64,
    status: u16,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Answered,
    NotReplayable,
    AnswerLost,
    Refused,
    Rejected,
    PanicBefore,
    PanicAfter,
    NeverBefore,
    NeverAfter,
}

impl End {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(64) {
            0..5 => Self::AnswerLost,
            5..8 => Self::Refused,
            8..11 => Self::Rejected,
            11 => Self::PanicBefore,
            12..14 => Self::PanicAfter,
            14 => Self::NeverBefore,
            15 => Self::NeverAfter,
            16..19 => Self::NotReplayable,
            _ => Self::Answered,
        }
    }

    const fn fault(self) -> Option<Fault> {
        match self {
            Self::Answered | Self::NotReplayable => None,
            Self::AnswerLost => Some(Fault::AnswerLost),
            Self::Refused => Some(Fault::Refused),
            Self::Rejected => Some(Fault::Rejected),
            Self::PanicBefore => Some(Fault::PanicBefore),
            Self::PanicAfter => Some(Fault::PanicAfter),
            Self::NeverBefore => Some(Fault::NeverBefore),
            Self::NeverAfter => Some(Fault::NeverAfter),
        }
    }
}

impl World {
    fn course(&mut self) -> Course {
        let quiet = self.quiet;
        let rng = &mut self.rng;
        let mut course = Course {
            before_ms: 0,
            after_ms: 0,
            travel_ms: 0,
            status: if rng.once_in(10) { 402 } else { 200 },
            end: End::Answered,
        };
        if quiet {
            return course;
        }
        course.end = End::draw(rng);
        course.before_ms = rng.below(4).saturating_sub(1) * rng.below(30);
        course.after_ms = rng.below(4).saturating_sub(1) * rng.below(30);
        course.travel_ms = rng.below(2) * rng.below(40);
        let (slow_before, slow_after) = (rng.once_in(12), rng.once_in(24));
        if slow_before {
            course.before_ms = rng.between(LEASE_MS / 2, 4 * LEASE_MS);
        }
        if slow_after {
            course.after_ms = rng.between(LEASE_MS / 2, 3 * LEASE_MS);
        }
        if course.end == End::AnswerLost {
            course.travel_ms = rng.below(1500);
        }
        for (happens, fault) in [
            (slow_before, Fault::SlowBefore),
            (slow_after, Fault::SlowAfter),
        ] {
            if happens {
                self.fault(fault);
            }
        }
        if let Some(fault) = course.end.fault() {
            self.fault(fault);
        }
        course
    }
}

/// The work. Its value is what its caller sees, if the answer is a final one.
pub(crate) async fn work(
    sim: Sim,
    node: usize,
    asked: Asked,
    execution: Execution,
) -> Finished<Option<StoredResponse>> {
    let _at_work = AtWork::begin(&sim);
    let (course, asks_if_held) = {
        let mut world = sim.world();
        (world.course(), world.shape.asks_if_held)
    };
    sim.sleep_some(course.before_ms).await;
    match course.end {
        End::Refused => return Finished::released(None),
        End::Rejected => return finished(Outcome::Rejected),
        // Without the hook, whose message would say that something is wrong.
        End::PanicBefore => std::panic::resume_unwind(Box::new("planned")),
        End::NeverBefore => return sim.never(node).await,
        _ => {}
    }
    if asks_if_held && !execution.is_held() {
        sim.world().fault(Fault::NotHeld);
        return Finished::released(None);
    }
    let Some(sent) = send(&sim, node, &asked, &execution, course).await else {
        let reason = [
            UnknownReason::NoCompleteAnswer,
            UnknownReason::HandlerSaidSo,
        ];
        return finished(Outcome::Unknown(reason[usize::from(course.status != 200)]));
    };
    let response = match sent {
        Upstreams::Done(response) => response,
        Upstreams::RolledBack => return Finished::released(None),
    };
    sim.sleep_some(course.after_ms).await;
    match course.end {
        End::PanicAfter => std::panic::resume_unwind(Box::new("planned")),
        End::NeverAfter => return sim.never(node).await,
        // In a transaction the answer is stored with the effect.
        End::NotReplayable if sim.world().shape.truth != Truth::Transactional => {
            return finished(Outcome::NotReplayable(TombstoneReason::Stream));
        }
        _ => {}
    }
    let mut world = sim.world();
    if world.bug == Some(Bug::RepliesBeforeDurable) {
        world.saw_final(&asked, &response);
    }
    drop(world);
    Finished::completed(response.clone(), Some(response))
}

/// Counts the works under way.
struct AtWork(Sim);

impl AtWork {
    fn begin(sim: &Sim) -> Self {
        sim.world().working += 1;
        Self(sim.clone())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.world().working -= 1;
    }
}

fn finished(outcome: Outcome) -> Finished<Option<StoredResponse>> {
    Finished {
        outcome,
        value: None,
    }
}

/// Sends, and waits for the answer unless it is to be lost.
async fn send(
    sim: &Sim,
    node: usize,
    asked: &Asked,
    execution: &Execution,
    course: Course,
) -> Option<Upstreams> {
    let lost = course.end == End::AnswerLost;
    let ask = Ask::Dispatch(Dispatch {
        operation: asked.operation,
        payload: asked.payload,
        status: course.status,
        id: *execution.id(),
        fence: execution.fence(),
        child_key: execution.child_key(CALL),
    });
    let plan = Plan {
        effect_ms: Some(course.travel_ms),
        answer: if lost {
            AnswerPlan::Never
        } else {
            AnswerPlan::Effect(course.travel_ms)
        },
        fault: None,
    };
    let call = Call::send(sim, &mut sim.world(), node, ask, plan);
    if lost {
        sim.sleep(50).await;
        return None;
    }
    match call.await {
        Answer::Dispatch(answer) => Some(answer),
        _ => None,
    }
}

impl Sim {
    /// Waits, or goes right on.
    async fn sleep_some(&self, millis: u64) {
        if millis > 0 {
            self.sleep(millis).await;
        }
    }

    async fn never<T>(&self, node: usize) -> T {
        self.world().nodes[node].hung += 1;
        std::future::pending().await
    }
}
