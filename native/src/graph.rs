//! What can be reached from roots, block by block: by pointers to beginnings first, then by any.
//!
//! A block is *reached* when pointers to beginnings of blocks lead to it from a root; *maybe reached* when a way there
//! needs a pointer into the middle of a block. Both are fixpoints, so that no order of work shows in the result.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use crate::memory::Spans;
use crate::parallel::{run_together, threads};
use crate::scan::{for_each_hit, Index, Pointers};
use crate::sized;

/// Not reached, reached through the middle of a block, reached.
pub const NOT: u8 = 0;
pub const MAYBE: u8 = 1;
pub const REACHED: u8 = 2;

const MANY: usize = sized(1 << 12, 4); // blocks to be looked at from which threads are worth their start
const PORTION: usize = sized(1 << 8, 2); // blocks that a thread takes at a time
const STRETCH: u64 = sized(1 << 20, 24) as u64; // bytes of one block that are looked at in one go
const PATIENCE: u64 = sized(1 << 20, 24) as u64; // bytes between two looks at the clock
const VISIT: u64 = sized(1 << 12, 8) as u64; // so many bytes are looked at while a block or span is found

/// A propagation that can be left and taken up again.
pub struct Job<'a> {
    memory: &'a Spans<'a>,
    index: &'a Index<'a>,
    pointers: Pointers,
    live: &'a [u8],
    states: Vec<AtomicU8>,
    open: Vec<u32>,
    /// Large blocks that were left, and how many of their bytes were looked at.
    partly: Vec<(u32, u64)>,
    level: u8,
}

impl<'a> Job<'a> {
    /// Prepares the propagation. `live` has a non-zero byte for each block that counts, `states` what roots point at:
    /// [`REACHED`] by a pointer to a beginning, [`MAYBE`] by one into the middle. None when they do not fit the index.
    pub fn new(
        memory: &'a Spans<'a>,
        index: &'a Index<'a>,
        pointers: Pointers,
        live: &'a [u8],
        states: &[u8],
    ) -> Option<Self> {
        if live.len() != index.len() || states.len() != index.len() {
            return None;
        }
        let known = |(&state, &live): (&u8, &u8)| AtomicU8::new(if live != 0 { state.min(REACHED) } else { NOT });
        let states: Vec<_> = states.iter().zip(live).map(known).collect();
        let mut job =
            Job { memory, index, pointers, live, states, open: Vec::new(), partly: Vec::new(), level: REACHED };
        job.open = job.having(REACHED);
        Some(job)
    }

    fn having(&self, wanted: u8) -> Vec<u32> {
        let of_state = |(_, state): &(u32, &AtomicU8)| state.load(Ordering::Relaxed) == wanted;
        (0u32..).zip(&self.states).filter(of_state).map(|(row, _)| row).collect()
    }

    /// Propagates until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> bool {
        let several = threads() > 1;
        loop {
            while !(self.open.is_empty() && self.partly.is_empty()) {
                if several && self.partly.is_empty() && self.open.len() >= MANY {
                    self.together(deadline);
                } else {
                    self.alone(deadline, several);
                }
                if Instant::now() >= deadline {
                    return false;
                }
            }
            if self.level == MAYBE {
                return true;
            }
            self.level = MAYBE;
            self.open = self.having(MAYBE);
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.states.len()
    }

    /// Writes the state of every block.
    pub fn write(&self, states: &mut [u8]) {
        for (to, from) in states.iter_mut().zip(&self.states) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// Looks at block after block; until there are many, where there are several threads.
    fn alone(&mut self, deadline: Instant, several: bool) {
        let mut open = std::mem::take(&mut self.open);
        let (mut worked, mut hints) = (0, Hints::default());
        while let Some((row, from)) = self.partly.pop().or_else(|| open.pop().map(|row| (row, 0))) {
            let (bytes, left) = self.look(row as usize, from, &mut hints, &mut open);
            self.partly.extend(left.map(|at| (row, at)));
            worked += bytes;
            if several && open.len() >= MANY && self.partly.is_empty() {
                break;
            }
            if worked >= PATIENCE {
                if Instant::now() >= deadline {
                    break;
                }
                worked = 0;
            }
        }
        self.open = open;
    }

    /// One round over all that is open now; what it leads to is open then.
    fn together(&mut self, deadline: Instant) {
        let open = std::mem::take(&mut self.open);
        let (taken, next) = (AtomicUsize::new(0), Mutex::new((Vec::new(), Vec::new())));
        let work = || {
            let (mut found, mut partly, mut hints) = (Vec::new(), Vec::new(), Hints::default());
            let (mut worked, mut late) = (0, false);
            loop {
                let from = taken.fetch_add(PORTION, Ordering::Relaxed);
                if from >= open.len() {
                    break;
                }
                let portion = &open[from..open.len().min(from + PORTION)];
                for &row in portion {
                    if late {
                        found.push(row); // for the next round
                        continue;
                    }
                    let (bytes, left) = self.look(row as usize, 0, &mut hints, &mut found);
                    partly.extend(left.map(|at| (row, at)));
                    worked += bytes;
                    if worked >= PATIENCE {
                        late = Instant::now() >= deadline;
                        worked = 0;
                    }
                }
            }
            if let Ok(mut next) = next.lock() {
                next.0.append(&mut found);
                next.1.append(&mut partly);
            }
        };
        run_together(threads(), work);
        let (open, partly) = next.into_inner().unwrap_or_default();
        self.open = open;
        self.partly = partly;
    }

    /// Scans a stretch of one block, `from` on, and adds the blocks to `open` that are to be scanned because of it.
    ///
    /// Returns how many bytes that was the work of, and where in the block to go on.
    fn look(&self, row: usize, from: u64, hints: &mut Hints, open: &mut Vec<u32>) -> (u64, Option<u64>) {
        let (start, size) = self.index.block(row);
        let (mut at, mut worked) = (from, VISIT);
        while at < size {
            if worked >= STRETCH + VISIT {
                return (worked, Some(at));
            }
            let place = start + at; // in the block, so in the address space
            let bytes = self.memory.from(place, &mut hints.span);
            if bytes.is_empty() {
                match self.memory.next_start(place) {
                    Some(next) => at = next - start,
                    None => break,
                }
                worked += VISIT;
                continue;
            }
            // A stretch ends at an aligned address, so that no word lies across two.
            let most = STRETCH - (place & (self.pointers.words.size as u64 - 1));
            let length = (bytes.len() as u64).min(size - at).min(most);
            for_each_hit(&bytes[..length as usize], place, self.pointers, self.index, &mut hints.table, |_, hit| {
                if self.live[hit.row] != 0 && self.raise(hit.row, hit.interior) {
                    open.push(hit.row as u32);
                }
            });
            at += length;
            worked += length.max(VISIT);
        }
        (worked, None)
    }

    /// Raises a block's state by a pointer to it; returns whether it must be scanned now.
    fn raise(&self, row: usize, interior: bool) -> bool {
        let to = if interior { MAYBE } else { self.level };
        if self.states[row].load(Ordering::Relaxed) >= to {
            return false;
        }
        self.states[row].fetch_max(to, Ordering::Relaxed) < to && to == self.level
    }
}

#[derive(Default)]
struct Hints {
    span: usize,
    table: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Span, Words};
    use std::time::Duration;

    const POINTERS: Pointers = Pointers { words: Words { size: 8, swapped: false }, clear: 0 };

    /// Blocks of 16 bytes from 0x1000 on, two words each; 7 is a row number, + 0.5 the middle.
    fn marked(words: &[u64], live: &[u8], roots: &[u8]) -> Vec<u8> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let address: Vec<u64> = (0..live.len() as u64).map(|row| 0x1000 + 16 * row).collect();
        let size = vec![16; live.len()];
        let memory = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let index = Index::new(&address, &size).unwrap();
        let mut job = Job::new(&memory, &index, POINTERS, live, roots).unwrap();
        while !job.run(Instant::now() + Duration::from_millis(5)) {}
        let mut states = vec![0; live.len()];
        job.write(&mut states);
        states
    }

    #[test]
    fn beginnings_before_middles() {
        let words = [0x1010, 0x1028, 0, 0, 0x1030, 0, 0x1018, 0, 0, 0x1000];
        assert_eq!(marked(&words, &[1; 5], &[2, 0, 0, 0, 0]), [2, 2, 1, 1, 0]);
    }

    #[test]
    fn what_does_not_count_leads_nowhere() {
        assert_eq!(marked(&[0x1010, 0, 0x1020, 0, 0, 0], &[1, 0, 1], &[2, 2, 0]), [2, 0, 0]);
    }

    #[test]
    fn a_long_list_and_a_wide_one() {
        let rows = 3 * MANY;
        let long: Vec<u64> = (0..rows as u64).flat_map(|row| [0x1000 + 16 * (row + 1), 0]).collect();
        let mut roots = vec![0; rows];
        roots[0] = REACHED;
        assert!(marked(&long, &vec![1; rows], &roots).iter().all(|&state| state == REACHED));
        let roots: Vec<u8> = (0..rows).map(|row| if row % 2 == 0 { MAYBE } else { NOT }).collect();
        assert!(marked(&long, &vec![1; rows], &roots).iter().all(|&state| state == MAYBE));
    }

    #[test]
    fn every_step_gets_on_and_none_is_long() {
        // A block of 3.5 stretches, out of alignment, whose last word leads to the block behind.
        let size = 3 * STRETCH + STRETCH / 2 + 4;
        let mut bytes = vec![0; size as usize + 16];
        let second = 0x1004 + size;
        bytes[size as usize - 4..][..8].copy_from_slice(&second.to_ne_bytes());
        let memory = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let (address, sizes) = ([0x1004, second], [size, 8]);
        let index = Index::new(&address, &sizes).unwrap();
        let mut job = Job::new(&memory, &index, POINTERS, &[1, 1], &[REACHED, NOT]).unwrap();
        let steps = (1..100).find(|_| job.run(Instant::now())).unwrap();
        assert!(steps > 3, "{steps}");
        let mut states = [9; 2];
        job.write(&mut states);
        assert_eq!(states, [REACHED; 2]);
    }
}
