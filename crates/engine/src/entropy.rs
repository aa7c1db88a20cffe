//! The operating system's entropy, asked for in larger pieces: a call costs more than its bytes.
//!
//! Every thread has a piece of its own. What was given out is wiped, so no byte is given out twice
//! and none can be read later. A copy of the running process, by a fork or by a snapshot of its
//! machine, would share what is left of a piece: nothing here forks, and a machine with a running
//! engine must not be cloned.

use std::cell::RefCell;

/// Enough for some dozens of fences.
const PIECE_BYTES: usize = 512;

struct Piece {
    bytes: [u8; PIECE_BYTES],
    /// How much of it was given out.
    used: usize,
}

thread_local! {
    static PIECE: RefCell<Piece> = const {
        RefCell::new(Piece { bytes: [0; PIECE_BYTES], used: PIECE_BYTES })
    };
}

/// Unpredictable bytes.
pub(crate) fn take<const N: usize>() -> [u8; N] {
    let mut taken = [0; N];
    let from_piece = PIECE.try_with(|piece| {
        let mut piece = piece.borrow_mut();
        if N > PIECE_BYTES - piece.used {
            fill(&mut piece.bytes);
            piece.used = 0;
        }
        let used = piece.used;
        let Some(next) = piece.bytes.get_mut(used..used + N) else {
            return false;
        };
        taken.copy_from_slice(next);
        next.fill(0);
        piece.used += N;
        true
    });
    // More than a piece at once, or a thread on its way out.
    if from_piece != Ok(true) {
        fill(&mut taken);
    }
    taken
}

#[expect(clippy::disallowed_methods, reason = "this file owns entropy")]
fn fill(bytes: &mut [u8]) {
    // Without entropy two executions could share a fence, which is a double charge. There is
    // nothing safe to fall back to.
    #[expect(clippy::expect_used, reason = "no safe way on without entropy")]
    getrandom::fill(bytes).expect("the operating system gives no entropy");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nothing_is_given_out_twice_not_even_in_parts_or_by_two_threads() {
        let take_many = || -> Vec<[u8; 8]> {
            (0..500)
                .flat_map(|_| {
                    let ([a, b, c], d) = (take::<24>().as_chunks().0.try_into().unwrap(), take());
                    [a, b, c, d]
                })
                .collect()
        };
        let other = std::thread::spawn(take_many);
        let mut all = take_many();
        all.extend(other.join().unwrap());
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 4000);
    }

    #[test]
    fn more_than_a_piece_is_given_at_once() {
        let much: [u8; 2 * PIECE_BYTES] = take();
        assert!(much.chunks(16).all(|part| part != [0; 16]));
    }
}
