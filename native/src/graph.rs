//! What can be reached from roots, block by block: by pointers to beginnings first, then by any.
//!
//! A block is *reached* when pointers to beginnings of blocks lead to it from a root; *maybe reached* when a way there
//! needs a pointer into the middle of a block. Both are fixpoints, so that no order of work shows in the result.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use crate::fallible::{append, collected, push, Error, Result};
use crate::gather::{Gathered, Hints, BLOCKS};
use crate::memory::{prefetch_item, Spans};
use crate::parallel::{run_together, threads};
use crate::scan::{for_each_hit, Index, Pointers};
use crate::sized;

/// Rows to be looked at, and parts of large ones.
type Next = (Vec<u32>, Vec<(u32, u64)>);

/// Not reached, reached through the middle of a block, reached.
pub const NOT: u8 = 0;
pub const MAYBE: u8 = 1;
pub const REACHED: u8 = 2;
/// Does not count: above all others, so that nothing raises it.
const DEAD: u8 = 3;

const MANY: usize = sized(1 << 12, 4); // blocks to be looked at from which rounds and threads are worth their start
const WIDE: usize = sized(1 << 20, 8); // blocks to be looked at from which large ones are left for later
const PORTION: usize = sized(1 << 8, 2); // blocks that a thread takes at a time
const STRETCH: u64 = sized(1 << 20, 24) as u64; // bytes of one block that are looked at in one go
const PATIENCE: u64 = sized(1 << 20, 24) as u64; // bytes between two looks at the clock
const FEW: usize = sized(3, 2); // blocks for which that is not worth it
const HITS: usize = sized(32, 2); // pointers whose targets are asked for before the first is raised
const VISIT: u64 = sized(1 << 12, 8) as u64; // so many bytes are looked at while a block or span is found

/// A propagation that can be left and taken up again.
pub struct Job<'a> {
    memory: &'a Spans<'a>,
    index: &'a Index<'a>,
    pointers: Pointers,
    states: Vec<AtomicU8>,
    open: Vec<u32>,
    /// Those that were open when a round began, in order, and how many of them were looked at.
    round: Vec<u32>,
    at: usize,
    /// Large blocks that were left, and how many of their bytes were looked at.
    partly: Vec<(u32, u64)>,
    level: u8,
}

impl<'a> Job<'a> {
    /// Prepares the propagation. `live` has a non-zero byte for each block that counts, `states` what roots point at:
    /// [`REACHED`] by a pointer to a beginning, [`MAYBE`] by one into the middle. There must be one of both for each block.
    pub fn new(
        memory: &'a Spans<'a>,
        index: &'a Index<'a>,
        pointers: Pointers,
        live: &[u8],
        states: &[u8],
    ) -> Result<Self> {
        if live.len() != index.len() || states.len() != index.len() {
            return Err(Error::BadArgument);
        }
        let known = |(&state, &live): (&u8, &u8)| AtomicU8::new(if live != 0 { state.min(REACHED) } else { DEAD });
        let states = collected(states.iter().zip(live).map(known))?;
        let (open, round, partly) = (Vec::new(), Vec::new(), Vec::new());
        let mut job = Job { memory, index, pointers, states, open, round, at: 0, partly, level: REACHED };
        job.open = job.having(REACHED)?;
        Ok(job)
    }

    fn having(&self, wanted: u8) -> Result<Vec<u32>> {
        let mut rows = Vec::new();
        for (row, state) in self.states.iter().enumerate() {
            if state.load(Ordering::Relaxed) == wanted {
                push(&mut rows, row as u32)?;
            }
        }
        Ok(rows)
    }

    /// Propagates until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        loop {
            while !(self.open.is_empty() && self.round.is_empty() && self.partly.is_empty()) {
                if !self.round.is_empty() {
                    self.together(deadline)?;
                } else if self.partly.is_empty() && self.open.len() >= MANY || self.open.len() >= WIDE {
                    self.round = std::mem::take(&mut self.open);
                    self.round.sort_unstable();
                    self.at = 0;
                } else {
                    self.alone(deadline)?;
                }
                if Instant::now() >= deadline {
                    return Ok(false);
                }
            }
            if self.level == MAYBE {
                return Ok(true);
            }
            self.level = MAYBE;
            self.open = self.having(MAYBE)?;
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.states.len()
    }

    /// Writes the state of every block.
    pub fn write(&self, states: &mut [u8]) {
        for (to, from) in states.iter_mut().zip(&self.states) {
            let state = from.load(Ordering::Relaxed);
            *to = if state == DEAD { NOT } else { state };
        }
    }

    /// Looks at block after block, at large ones first, until there are many to be looked at; never at so many that what
    /// a large block leads to would all be open at a time.
    fn alone(&mut self, deadline: Instant) -> Result<()> {
        let (mut open, mut partly) = (std::mem::take(&mut self.open), std::mem::take(&mut self.partly));
        let (mut worked, mut look) = (0, Look::default());
        loop {
            if open.len() >= WIDE {
                break;
            } else if let Some((row, from)) = partly.pop() {
                worked += self.look(row, from, &mut look.hints, &mut open, &mut partly)?;
            } else if open.is_empty() || open.len() >= MANY {
                break;
            } else {
                let mut rows = [0; BLOCKS];
                let last = open.len() - BLOCKS.min(open.len());
                let rows = &mut rows[..open.len() - last];
                rows.copy_from_slice(&open[last..]);
                open.truncate(last);
                worked += self.look_at_some(rows, &mut look, &mut open, &mut partly)?;
            }
            if worked >= PATIENCE {
                if Instant::now() >= deadline {
                    break;
                }
                worked = 0;
            }
        }
        self.open = open;
        self.partly = partly;
        Ok(())
    }

    /// Goes on with a round over all that was open, in order of address, so that what lies near is fetched together; what
    /// it leads to is open then.
    fn together(&mut self, deadline: Instant) -> Result<()> {
        let (taken, failed) = (AtomicUsize::new(self.at), AtomicBool::new(false));
        let next = Mutex::new((Vec::new(), Vec::new()));
        run_together(threads(), || {
            if self.take_portions(&self.round, &taken, deadline, &next).is_err() {
                taken.store(self.round.len(), Ordering::Relaxed); // so that the others end
                failed.store(true, Ordering::Relaxed);
            }
        });
        if failed.into_inner() {
            return Err(Error::OutOfMemory);
        }
        self.at = taken.into_inner();
        if self.at >= self.round.len() {
            self.round = Vec::new();
        }
        let (open, partly) = next.into_inner().unwrap_or_default();
        append(&mut self.open, &open)?;
        append(&mut self.partly, &partly)
    }

    /// Takes portion after portion of what is open, and adds to `next` what is to be looked at because of it, or was
    /// left.
    fn take_portions(&self, open: &[u32], taken: &AtomicUsize, deadline: Instant, next: &Mutex<Next>) -> Result<()> {
        let (mut found, mut partly, mut look) = (Vec::new(), Vec::new(), Look::default());
        let (mut worked, mut late) = (0, false);
        while !late {
            let from = taken.fetch_add(PORTION, Ordering::Relaxed);
            if from >= open.len() {
                break;
            }
            for rows in open[from..open.len().min(from + PORTION)].chunks(BLOCKS) {
                if late {
                    append(&mut found, rows)?; // for the next round
                    continue;
                }
                worked += self.look_at_some(rows, &mut look, &mut found, &mut partly)?;
                if worked >= PATIENCE {
                    late = Instant::now() >= deadline;
                    worked = 0;
                }
            }
        }
        if let Ok(mut next) = next.lock() {
            append(&mut next.0, &found)?;
            append(&mut next.1, &partly)?;
        }
        Ok(())
    }

    /// Scans some blocks, no more than [`BLOCKS`], and adds the blocks to `open` that are to be scanned because of it;
    /// adds to `partly` what was left. Returns how many bytes that was the work of.
    ///
    /// The blocks lie anywhere: all are asked for before the first is looked at.
    fn look_at_some(
        &self,
        rows: &[u32],
        look: &mut Look,
        open: &mut Vec<u32>,
        partly: &mut Vec<(u32, u64)>,
    ) -> Result<u64> {
        let Look { hints, gathered } = look;
        if rows.len() < FEW {
            return rows.iter().try_fold(0, |sum, &row| Ok(sum + self.look(row, 0, hints, open, partly)?));
        }
        let mut blocks = [(0, &[][..]); BLOCKS];
        let mut count = 0;
        let mut worked = VISIT;
        let mut bounds = [(0, 0); BLOCKS];
        for (bounds, &row) in bounds.iter_mut().zip(rows) {
            *bounds = self.index.block(row as usize);
        }
        for (&row, (start, size)) in rows.iter().zip(bounds) {
            if let Some(block) = Gathered::fetch(self.memory, start, size, hints) {
                blocks[count] = (start, block);
                count += 1;
            } else {
                worked += self.look(row, 0, hints, open, partly)?;
            }
        }
        for &(start, block) in &blocks[..count] {
            gathered.add(start, block, self.pointers)?;
        }
        worked += gathered.len() as u64;
        let mut hits = [(0, false); HITS];
        let mut kept = 0;
        gathered.for_each_hit(self.pointers, self.index, hints, |_, hit| {
            prefetch_item(&self.states, hit.row);
            hits[kept] = (hit.row as u32, hit.interior);
            kept += 1;
            if kept == HITS {
                self.raise_all(&hits, open)?;
                kept = 0;
            }
            Ok(())
        })?;
        self.raise_all(&hits[..kept], open)?;
        Ok(worked)
    }

    #[inline(never)]
    fn raise_all(&self, hits: &[(u32, bool)], open: &mut Vec<u32>) -> Result<()> {
        for &(row, interior) in hits {
            if self.raise(row as usize, interior) {
                push(open, row)?;
            }
        }
        Ok(())
    }

    /// Scans a stretch of one block, `from` on, and adds the blocks to `open` that are to be scanned because of it.
    ///
    /// Returns how many bytes that was the work of; where more is left of the block, adds to `partly` where to go on.
    fn look(
        &self,
        row: u32,
        from: u64,
        hints: &mut Hints,
        open: &mut Vec<u32>,
        partly: &mut Vec<(u32, u64)>,
    ) -> Result<u64> {
        let (start, size) = self.index.block(row as usize);
        let (mut at, mut worked) = (from, VISIT);
        while at < size {
            if worked >= STRETCH + VISIT {
                push(partly, (row, at))?;
                break;
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
                if self.raise(hit.row, hit.interior) {
                    push(open, hit.row as u32)?;
                }
                Ok(())
            })?;
            at += length;
            worked += length.max(VISIT);
        }
        Ok(worked)
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
struct Look {
    hints: Hints,
    gathered: Gathered,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Span, Words};
    use crate::scan::HEADERS;
    use std::time::Duration;

    const POINTERS: Pointers =
        Pointers { words: Words { size: 8, swapped: false }, clear: 0, mangled: false, headers: [0; HEADERS], part: 0 };

    /// Blocks of 16 bytes from 0x1000 on, two words each; 7 is a row number, + 0.5 the middle.
    fn marked(words: &[u64], live: &[u8], roots: &[u8]) -> Vec<u8> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let address: Vec<u64> = (0..live.len() as u64).map(|row| 0x1000 + 16 * row).collect();
        let size = vec![16; live.len()];
        let memory = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let index = Index::new(&address, &size).unwrap();
        let mut job = Job::new(&memory, &index, POINTERS, live, roots).unwrap();
        while !job.run(Instant::now() + Duration::from_millis(5)).unwrap() {}
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
        let steps = (1..100).find(|_| job.run(Instant::now()).unwrap()).unwrap();
        assert!(steps > 3, "{steps}");
        let mut states = [9; 2];
        job.write(&mut states);
        assert_eq!(states, [REACHED; 2]);
    }
}
