//! ptmalloc's chunks: a walk along sizes, from each chunk to the next (malloc/malloc.c, `struct malloc_chunk`).
//!
//! A chunk at word p keeps `prev_size` in word p and its size with three flag bits in word p + 1.

use std::ptr::read_volatile;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use crate::fallible::{Error, Result};
use crate::memory::{prefetch_item, Words};
use crate::parallel::{run_together, threads};
use crate::sized;

const FLAGS: u64 = 7;
const PREV_INUSE: u64 = 1;
const AHEAD: usize = 1024; // bytes
const LONG: usize = sized(1 << 14, 3); // chunks for which another thread pays
const LEAD: usize = sized(4 << 20, 256); // bytes that are read before the walk comes to them, at most
const LINE: usize = 128; // bytes that come together
const PAUSE: Duration = Duration::from_micros(50); // in which a walk goes some hundred KiB
const ENDED: usize = usize::MAX;

/// What makes a size valid; bytes.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub words: Words,
    pub minimum: u64,
    pub granule: u64,
}

/// Where the columns of chunks go; all of one length, which is how many fit.
pub struct Columns<'a> {
    pub address: &'a mut [u64],
    pub size: &'a mut [u64],
    pub flags: &'a mut [u8],
    pub free: &'a mut [u8],
    /// Rows of free chunks whose size does not stand again in front of the chunk behind.
    pub mismatched: &'a mut [u64],
}

/// What a walk came to.
#[derive(Debug, PartialEq, Eq)]
pub struct Walk {
    pub chunks: usize,
    pub mismatches: usize,
    /// The word at which it ended.
    pub end: usize,
}

/// Follows sizes from word `start` to word `stop`, at which a sound walk arrives exactly.
///
/// It ends at `stop`, or at the first chunk whose size is invalid or reaches beyond (that one has no row), or, when the
/// columns are full, at the next chunk. Whether the last chunk is free is read from the one behind it; where that is
/// not in `memory`, it counts as used.
pub fn walk(memory: &[u8], origin: u64, start: usize, stop: usize, rules: Rules, columns: &mut Columns) -> Walk {
    walk_from(memory, origin, start, stop, rules, columns, &AtomicUsize::new(0))
}

/// As [`walk`]. Where that may be long another thread reads ahead of it, for each step waits for memory.
pub fn walk_with_reader(
    memory: &[u8],
    origin: u64,
    start: usize,
    stop: usize,
    rules: Rules,
    mut columns: Columns,
) -> Result<Walk> {
    if columns.address.len() < LONG || threads() < 2 {
        return Ok(walk(memory, origin, start, stop, rules, &mut columns));
    }
    let size = rules.words.size;
    let place = AtomicUsize::new(start * size);
    let (columns, found) = (Mutex::new(Some(columns)), Mutex::new(None));
    run_together(2, || {
        let mine = columns.lock().ok().and_then(|mut columns| columns.take());
        if let Some(mut columns) = mine {
            let walked = walk_from(memory, origin, start, stop, rules, &mut columns, &place);
            place.store(ENDED, Ordering::Relaxed);
            if let Ok(mut found) = found.lock() {
                *found = Some(walked);
            }
        } else {
            read_ahead(&memory[..memory.len().min(stop.saturating_mul(size))], &place);
        }
    });
    found.into_inner().ok().flatten().ok_or(Error::BadArgument) // there is one: the thread that came first walks
}

/// Reads what a walk comes to, until it has ended. Where the walk is further on, so is the reading: of a large chunk
/// only its beginning is needed.
fn read_ahead(memory: &[u8], place: &AtomicUsize) {
    let mut at = place.load(Ordering::Relaxed);
    while at < memory.len() {
        let walked = place.load(Ordering::Relaxed);
        if walked == ENDED {
            return;
        }
        if at > walked.saturating_add(LEAD) {
            sleep(PAUSE);
            continue;
        }
        at = at.max(walked);
        for byte in memory[at.min(memory.len())..].iter().take(32 * LINE).step_by(LINE) {
            unsafe { read_volatile(byte) };
        }
        at += 32 * LINE;
    }
}

/// The walk; `place` is where it is, in bytes.
fn walk_from(
    memory: &[u8],
    origin: u64,
    start: usize,
    stop: usize,
    rules: Rules,
    columns: &mut Columns,
    place: &AtomicUsize,
) -> Walk {
    let stop = stop.min(memory.len() / rules.words.size);
    if start >= stop {
        return Walk { chunks: 0, mismatches: 0, end: start };
    }
    match (rules.words.size, rules.words.swapped) {
        (8, false) => Walker::<8, false> { memory, origin, stop, rules, place }.run(start, columns),
        (8, true) => Walker::<8, true> { memory, origin, stop, rules, place }.run(start, columns),
        (_, false) => Walker::<4, false> { memory, origin, stop, rules, place }.run(start, columns),
        (_, true) => Walker::<4, true> { memory, origin, stop, rules, place }.run(start, columns),
    }
}

struct Walker<'a, const SIZE: usize, const SWAPPED: bool> {
    memory: &'a [u8],
    origin: u64,
    stop: usize,
    rules: Rules,
    place: &'a AtomicUsize,
}

impl<const SIZE: usize, const SWAPPED: bool> Walker<'_, SIZE, SWAPPED> {
    #[inline(always)]
    fn word(&self, at: usize) -> Option<u64> {
        let bytes = self.memory.get(at * SIZE..at * SIZE + SIZE)?;
        Some(Words { size: SIZE, swapped: SWAPPED }.decode(bytes))
    }

    /// The chunk behind one at `at`; None where its size is invalid or reaches beyond the end.
    #[inline(always)]
    fn next(&self, at: usize, head: u64) -> Option<usize> {
        let size = head & !FLAGS;
        let room = (self.stop.checked_sub(at)? * SIZE) as u64;
        if size < self.rules.minimum || size & (self.rules.granule - 1) != 0 || size > room {
            return None;
        }
        Some(at + size as usize / SIZE)
    }

    fn run(&self, start: usize, columns: &mut Columns) -> Walk {
        let mut walk = Walk { chunks: 0, mismatches: 0, end: start };
        let mut head = self.word(start + 1).unwrap_or(0);
        while walk.chunks < columns.address.len() && walk.end + 2 <= self.stop {
            let next = match self.next(walk.end, head) {
                Some(next) => next,
                None => break,
            };
            self.place.store(next * SIZE, Ordering::Relaxed);
            // Each step waits for the size that the one before has read.
            prefetch_item(self.memory, next * SIZE + AHEAD);
            // The header behind says whether this chunk is free; it is on the same cache line as the size that must
            // then stand there again.
            let behind = self.word(next + 1).unwrap_or(PREV_INUSE);
            let (row, size, free) = (walk.chunks, head & !FLAGS, behind & PREV_INUSE == 0);
            // Without a branch, as there is no guessing which chunks are free.
            let again = self.word(next).unwrap_or(size);
            columns.mismatched[walk.mismatches] = row as u64;
            walk.mismatches += usize::from(free & (again != size));
            columns.address[row] = self.origin.wrapping_add((walk.end * SIZE) as u64);
            columns.size[row] = size;
            columns.flags[row] = (head & FLAGS) as u8;
            columns.free[row] = u8::from(free);
            walk.chunks += 1;
            walk.end = next;
            head = behind;
        }
        walk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::set_threads;

    const RULES: Rules = Rules { words: Words { size: 8, swapped: false }, minimum: 32, granule: 16 };

    fn walked(words: &[u64], stop: usize, room: usize) -> (Walk, Vec<u64>, Vec<u8>, Vec<u64>) {
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (mut address, mut size) = (vec![0; room], vec![0; room]);
        let (mut flags, mut free, mut mismatched) = (vec![0; room], vec![0; room], vec![0; room]);
        let mut columns = Columns {
            address: &mut address,
            size: &mut size,
            flags: &mut flags,
            free: &mut free,
            mismatched: &mut mismatched,
        };
        let walk = walk(&memory, 0x1000, 0, stop, RULES, &mut columns);
        mismatched.truncate(walk.mismatches);
        (walk, address, free, mismatched)
    }

    #[test]
    fn from_chunk_to_chunk() {
        let words = [0, 33, 0, 0, 0, 33, 0, 0, 32, 32, 0, 0, 0, 0x21001];
        let (walk, address, free, mismatched) = walked(&words, 12, 8);
        assert_eq!(walk, Walk { chunks: 3, mismatches: 0, end: 12 });
        assert_eq!(address[..3], [0x1000, 0x1020, 0x1040]);
        assert_eq!(free[..3], [0, 1, 0]);
        assert!(mismatched.is_empty());
    }

    #[test]
    fn a_size_that_is_not_there_again() {
        let words = [0, 33, 0, 0, 99, 32, 0, 0, 0, 1];
        assert_eq!(walked(&words, 8, 8).3, [0]);
    }

    #[test]
    fn it_ends_where_a_size_is_wrong_or_there_is_no_room() {
        for bad in [0, 16, 40, 48, u64::MAX] {
            let words = [0, 33, 0, 0, 0, bad, 0, 0, 0, 0];
            assert_eq!(walked(&words, 8, 8).0.end, 4, "{bad}");
        }
        let words = [0, 33, 0, 0, 0, 33, 0, 0, 0, 1];
        assert_eq!(walked(&words, 8, 1).0, Walk { chunks: 1, mismatches: 0, end: 4 });
        assert_eq!(walked(&[], 8, 1).0, Walk { chunks: 0, mismatches: 0, end: 0 });
    }

    #[test]
    fn a_thread_that_reads_ahead_changes_nothing() {
        let count = 2 * LONG;
        let mut words: Vec<u64> = (0..count as u64).flat_map(|row| [0, 33 - row % 3 / 2, 0, 0]).collect();
        words[4 * (LONG + 7) + 1] = 4097; // some of the next ones are inside
        words.extend([0, 0x21001]);
        let (expected, address, free, mismatched) = walked(&words, 4 * count, count);
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for used in [1, 2, 7] {
            let mut all = (vec![0; count], vec![0; count], vec![0; count], vec![0; count], vec![0; count]);
            let columns = Columns {
                address: &mut all.0,
                size: &mut all.1,
                flags: &mut all.2,
                free: &mut all.3,
                mismatched: &mut all.4,
            };
            set_threads(used);
            let found = walk_with_reader(&memory, 0x1000, 0, 4 * count, RULES, columns).unwrap();
            set_threads(0);
            assert_eq!((&found, &all.0, &all.3), (&expected, &address, &free));
            assert_eq!(all.4[..found.mismatches], mismatched);
        }
    }

    #[test]
    fn a_beginning_anywhere() {
        for start in [8, 9, usize::MAX - 1, usize::MAX] {
            let mut none =
                Columns { address: &mut [0], size: &mut [0], flags: &mut [0], free: &mut [0], mismatched: &mut [0] };
            let found = walk(&[0; 64], 0, start, usize::MAX, RULES, &mut none);
            assert_eq!(found, Walk { chunks: 0, mismatches: 0, end: start });
        }
    }
}
