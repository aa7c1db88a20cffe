//! Answers to many callers, with one wake-up for each of their threads.
//!
//! To wake a task of another thread costs a system call where that thread has a runtime of its own.
//! So of the callers that asked from one thread one gets the answers of all, and hands the others
//! on from there, where that is cheap. If it has gone away, or goes away before it looks, the
//! others are handed on nevertheless: [`Drop`] does it.
//!
//! Threads on other processors are woken first. One on the writer's own may take its place at once,
//! and keep the others waiting for all that it has to do, on processors that have nothing to do.

use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_store::StoreError;
use tokio::sync::oneshot;

/// Where an answer is awaited.
pub(crate) type Awaited<T> = oneshot::Receiver<Answer<T>>;

/// Where an answer is to be sent.
pub(crate) struct Reply<T> {
    sender: oneshot::Sender<Answer<T>>,
    /// The thread that asked, and where it ran.
    thread: u64,
    processor: usize,
}

impl<T> Reply<T> {
    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.sender.is_closed()
    }

    /// Answers are sent from the last to the first of this order: those of one thread together,
    /// those on the processor `here` at the end. A thread that was moved between two of its callers
    /// may be woken twice.
    fn order(&self, here: usize) -> (bool, u64) {
        (self.processor != here, self.thread)
    }
}

/// An answer, and those of others who asked from the same thread.
pub(crate) struct Answer<T> {
    own: Option<Result<T, StoreError>>,
    others: Vec<(Reply<T>, Result<T, StoreError>)>,
}

/// A caller's two ends.
pub(crate) fn channel<T>() -> (Reply<T>, Awaited<T>) {
    let (sender, awaited) = oneshot::channel();
    let reply = Reply {
        sender,
        thread: this_thread(),
        processor: this_processor(),
    };
    (reply, awaited)
}

/// Sends every answer to its caller. Nobody may be waiting any more: callers may give up.
pub(crate) fn send_all<T>(answers: Vec<(Reply<T>, Result<T, StoreError>)>) {
    for (first, answer) in by_thread(answers, this_processor()) {
        // One that nobody takes is dropped, and hands on the others.
        let _ = first.sender.send(answer);
    }
}

/// Who is to be woken from the processor `here`, one after the other, and with what.
fn by_thread<T>(
    mut answers: Vec<(Reply<T>, Result<T, StoreError>)>,
    here: usize,
) -> impl Iterator<Item = (Reply<T>, Answer<T>)> {
    answers.sort_by_key(|(reply, _)| reply.order(here));
    std::iter::from_fn(move || {
        let (first, own) = answers.pop()?;
        let order = first.order(here);
        let same = answers.partition_point(|(reply, _)| reply.order(here) < order);
        let (own, others) = (Some(own), answers.split_off(same));
        Some((first, Answer { own, others }))
    })
}

impl<T> Answer<T> {
    /// The caller's own answer; the others' are handed on.
    pub(crate) fn take(mut self) -> Option<Result<T, StoreError>> {
        self.own.take()
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        for (reply, own) in self.others.drain(..) {
            let (own, others) = (Some(own), Vec::new());
            let _ = reply.sender.send(Answer { own, others });
        }
    }
}

/// A number for each thread that asks.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static THREAD: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    THREAD.with(|thread| *thread)
}

/// Where this thread runs, at this moment.
#[cfg(target_os = "linux")]
fn this_processor() -> usize {
    rustix::thread::sched_getcpu()
}

/// Only Linux is asked.
#[cfg(not(target_os = "linux"))]
fn this_processor() -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callers of a thread that has a processor for itself.
    fn callers(count: u64, thread: u64) -> (Vec<Reply<u64>>, Vec<Awaited<u64>>) {
        let pairs = (0..count).map(|_| {
            let (mut reply, awaited) = channel();
            reply.thread = thread;
            reply.processor = usize::try_from(thread).unwrap();
            (reply, awaited)
        });
        pairs.unzip()
    }

    fn answers(replies: Vec<Reply<u64>>) -> Vec<(Reply<u64>, Result<u64, StoreError>)> {
        let numbered = replies.into_iter().zip(0..);
        numbered
            .map(|(reply, number)| (reply, Ok(number)))
            .collect()
    }

    fn got(awaited: &mut Awaited<u64>) -> Option<u64> {
        awaited.try_recv().ok()?.take()?.ok()
    }

    #[test]
    fn one_of_each_thread_is_woken_and_hands_on_the_rest() {
        let (one, mut ones) = callers(5, 1);
        let (two, mut twos) = callers(3, 2);
        send_all(answers(one.into_iter().chain(two).collect()));
        let waiting =
            |all: &mut Vec<Awaited<u64>>| all.iter_mut().filter(|one| one.is_empty()).count();
        assert_eq!((waiting(&mut ones), waiting(&mut twos)), (4, 2));
        for all in [&mut ones, &mut twos] {
            let first = all.iter().position(|one| !one.is_empty()).unwrap();
            assert!(got(&mut all[first]).is_some());
        }
        assert_eq!((waiting(&mut ones), waiting(&mut twos)), (1, 1));
    }

    /// Whoever is woken on the writer's own processor may keep it from waking anybody else.
    #[test]
    fn threads_on_other_processors_are_woken_first() {
        for here in 1..=3 {
            let all = (1..=3).flat_map(|thread| callers(2, thread).0).collect();
            let order: Vec<_> = by_thread(answers(all), here).collect();
            let processors: Vec<_> = order.iter().map(|(first, _)| first.processor).collect();
            assert_eq!(processors.len(), 3);
            assert_eq!(processors.last(), Some(&here));
        }
    }

    #[test]
    fn everybody_gets_their_own_answer() {
        let (replies, mut awaited) = callers(5, 1);
        send_all(answers(replies));
        // From the last to the first: whichever was woken hands on to all before.
        let mut all: Vec<_> = awaited.iter_mut().rev().map(got).collect();
        all.reverse();
        assert_eq!(all, (0..5).map(Some).collect::<Vec<_>>());
    }

    /// Whoever of them goes away, before or after its answer came.
    #[test]
    fn a_caller_that_goes_away_keeps_nothing_from_the_others() {
        for gone in 0..5 {
            let (replies, awaited) = callers(5, 1);
            let mut awaited: Vec<_> = awaited.into_iter().map(Some).collect();
            awaited[gone] = None;
            send_all(answers(replies));
            let answered = awaited.iter_mut().rev().flatten().filter_map(got).count();
            assert_eq!(answered, 4, "before: {gone}");

            let (replies, mut awaited) = callers(5, 1);
            send_all(answers(replies));
            drop(awaited.remove(gone));
            let answered = awaited.iter_mut().rev().filter_map(got).count();
            assert_eq!(answered, 4, "after: {gone}");
        }
    }
}
