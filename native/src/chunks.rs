//! ptmalloc's chunks: a walk along sizes, from each chunk to the next (malloc/malloc.c, `struct malloc_chunk`).
//!
//! A chunk at word p keeps `prev_size` in word p and its size with three flag bits in word p + 1.

use crate::memory::{prefetch_item, Words};
use crate::sized;

const FLAGS: u64 = 7;
const PREV_INUSE: u64 = 1;

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
    let stop = stop.min(memory.len() / rules.words.size);
    if start >= stop {
        return Walk { chunks: 0, mismatches: 0, end: start };
    }
    match (rules.words.size, rules.words.swapped) {
        (8, false) => Walker::<8, false> { memory, origin, stop, rules }.run(start, columns),
        (8, true) => Walker::<8, true> { memory, origin, stop, rules }.run(start, columns),
        (_, false) => Walker::<4, false> { memory, origin, stop, rules }.run(start, columns),
        (_, true) => Walker::<4, true> { memory, origin, stop, rules }.run(start, columns),
    }
}

// Each step of a walk waits for the size that the one before has read, so that several walks take hardly longer than
// one. Where chunks are small, windows that follow each other are walked at the same time, all but the first from
// places where chunks seem to begin. What a walk finds depends on the place alone: it counts from where
// the walk through the window before has arrived at one of its chunks; where it did not, the window is walked again.
const LANES: usize = 4;
const WINDOW: usize = sized(1 << 14, 1 << 7); // bytes
const GRANULE: u64 = 64; // the largest that windows are a multiple of
const SPARSE: usize = sized(1 << 9, 1 << 6); // bytes of a chunk from which windows hold too few
const AHEAD: usize = 1024; // bytes
const PROBES: usize = 64; // places at which a window's first chunk is looked for
const CONFIRMING: usize = 4; // chunks that follow one that is believed
const TRIAL: usize = sized(1 << 8, 2); // chunks that show how large they are
const LONGEST_TRIAL: usize = sized(1 << 16, 8); // where windows have failed again and again

struct Walker<'a, const SIZE: usize, const SWAPPED: bool> {
    memory: &'a [u8],
    origin: u64,
    stop: usize,
    rules: Rules,
}

/// The chunks of a window: the word at which each begins, and its size with the flags; the last is where it ended.
#[derive(Default)]
struct Lane {
    places: Vec<usize>,
    heads: Vec<u64>,
    count: usize,
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
        let mut lanes: [Lane; LANES] = Default::default();
        let mut trial = TRIAL;
        loop {
            let (begun, before) = (walk.end, walk.chunks);
            self.one_by_one(trial, &mut walk, columns);
            let found = walk.chunks - before;
            if found < trial {
                return walk;
            }
            if (walk.end - begun) * SIZE / found < SPARSE && self.rules.granule <= GRANULE {
                lanes.iter_mut().for_each(|lane| lane.grow(self.most()));
                let gained = self.by_windows(&mut lanes, &mut walk, columns);
                trial = if gained { TRIAL } else { LONGEST_TRIAL.min(2 * trial) };
            }
        }
    }

    /// Walks so many chunks, or to the end.
    fn one_by_one(&self, most: usize, walk: &mut Walk, columns: &mut Columns) {
        let room = columns.address.len().min(walk.chunks + most);
        let mut at = walk.end;
        let mut head = self.word(at + 1).unwrap_or(0);
        while walk.chunks < room && at + 2 <= self.stop {
            let next = match self.next(at, head) {
                Some(next) => next,
                None => break,
            };
            // The header behind says whether this chunk is free; it is on the same cache line as the size that must
            // then stand there again.
            let behind = self.word(next + 1).unwrap_or(PREV_INUSE);
            let (row, size, free) = (walk.chunks, head & !FLAGS, behind & PREV_INUSE == 0);
            if free && self.word(next).map_or(false, |again| again != size) {
                columns.mismatched[walk.mismatches] = row as u64;
                walk.mismatches += 1;
            }
            columns.address[row] = self.origin.wrapping_add((at * SIZE) as u64);
            columns.size[row] = size;
            columns.flags[row] = (head & FLAGS) as u8;
            columns.free[row] = u8::from(free);
            walk.chunks += 1;
            at = next;
            head = behind;
        }
        walk.end = at;
    }

    /// Walks several windows at a time for as long as that goes well; returns whether it did.
    fn by_windows(&self, lanes: &mut [Lane; LANES], walk: &mut Walk, columns: &mut Columns) -> bool {
        let width = WINDOW / SIZE;
        loop {
            let (begun, before) = (walk.end, walk.chunks);
            if begun + LANES * width + 2 > self.stop || walk.chunks == columns.address.len() {
                return true;
            }
            let mut windows = [(begun, begun + width); LANES];
            for (number, window) in windows.iter_mut().enumerate().skip(1) {
                // Where no chunk seems to begin, the first window stands in.
                let low = begun + number * width;
                *window = self.seem_to_begin(low).map_or(*window, |at| (at, low + width));
            }
            self.walk_windows(lanes, windows);
            let mut failed = 0;
            for (number, lane) in lanes.iter_mut().enumerate() {
                let end = begun + (number + 1) * width;
                if walk.end < end && !self.take(lane, walk, columns) {
                    failed += 1;
                    self.finish(lane, 0, (walk.end, self.word(walk.end + 1).unwrap_or(0)), end);
                    self.take(lane, walk, columns);
                }
                if walk.end < end {
                    return true; // a size is wrong, or the columns are full
                }
            }
            if failed > LANES / 2 {
                return false;
            }
            if (walk.end - begun) * SIZE / (walk.chunks - before).max(1) >= SPARSE {
                return true;
            }
        }
    }

    /// The first place from `low` on from which some chunks follow each other.
    fn seem_to_begin(&self, low: usize) -> Option<usize> {
        let step = (self.rules.granule as usize / SIZE).max(1);
        (low..).step_by(step).take(PROBES).find(|&place| {
            let mut at = place;
            (0..=CONFIRMING).all(|_| match self.word(at + 1).and_then(|head| self.next(at, head)) {
                Some(next) => {
                    at = next;
                    true
                }
                None => false,
            })
        })
    }

    /// Walks all windows: first step by step together, until one comes to its end, then what is left of each.
    fn walk_windows(&self, lanes: &mut [Lane; LANES], windows: [(usize, usize); LANES]) {
        let mut at = windows.map(|window| window.0);
        let mut heads = at.map(|at| self.word(at + 1).unwrap_or(0));
        let most = self.most();
        let [first, second, third, fourth] = &mut *lanes;
        let columns = [first, second, third, fourth].map(|lane| (&mut lane.places[..most], &mut lane.heads[..most]));
        let (least, misaligned) = (self.rules.minimum, self.rules.granule - 1);
        let mut count = 0;
        while count < most - 1 {
            let (mut next, mut sound) = (at, true);
            for number in 0..LANES {
                columns[number].0[count] = at[number];
                columns[number].1[count] = heads[number];
                let size = heads[number] & !FLAGS;
                next[number] = at[number].wrapping_add((size / SIZE as u64) as usize);
                sound &= (size >= least) & (size & misaligned == 0) & (size < WINDOW as u64);
                sound &= next[number] < windows[number].1;
            }
            if !sound {
                break;
            }
            at = next;
            heads = at.map(|at| {
                prefetch_item(self.memory, at * SIZE + AHEAD);
                self.word(at + 1).unwrap_or(0)
            });
            count += 1;
        }
        for number in 0..LANES {
            self.finish(&mut lanes[number], count, (at[number], heads[number]), windows[number].1);
        }
    }

    /// How many chunks a window can hold, and the end.
    fn most(&self) -> usize {
        WINDOW / self.rules.minimum as usize + 2
    }

    fn finish(&self, lane: &mut Lane, mut count: usize, from: (usize, u64), end: usize) {
        let (mut at, mut head) = from;
        while at < end && at + 2 <= self.stop && count + 1 < lane.places.len() {
            let next = match self.next(at, head) {
                Some(next) => next,
                None => break,
            };
            lane.places[count] = at;
            lane.heads[count] = head;
            count += 1;
            at = next;
            head = self.word(at + 1).unwrap_or(PREV_INUSE);
        }
        lane.places[count] = at;
        lane.heads[count] = head;
        lane.count = count;
    }

    /// Takes the chunks of a window from where the walk is; false when it is at none of them.
    fn take(&self, lane: &Lane, walk: &mut Walk, columns: &mut Columns) -> bool {
        let places = &lane.places[..lane.count];
        let from = match places.binary_search(&walk.end) {
            Ok(from) => from,
            Err(_) => return false,
        };
        let count = (lane.count - from).min(columns.address.len() - walk.chunks);
        let (places, heads) = (&lane.places[from..=from + count], &lane.heads[from..=from + count]);
        let rows = walk.chunks..walk.chunks + count;
        for (to, &place) in columns.address[rows.clone()].iter_mut().zip(places) {
            *to = self.origin.wrapping_add((place * SIZE) as u64);
        }
        for (to, &head) in columns.size[rows.clone()].iter_mut().zip(heads) {
            *to = head & !FLAGS;
        }
        for (to, &head) in columns.flags[rows.clone()].iter_mut().zip(heads) {
            *to = (head & FLAGS) as u8;
        }
        let mut some = 0;
        for (to, &behind) in columns.free[rows.clone()].iter_mut().zip(&heads[1..]) {
            *to = (!behind & PREV_INUSE) as u8;
            some |= *to;
        }
        if some != 0 {
            self.compare(rows.start, places, heads, walk, columns);
        }
        walk.chunks = rows.end;
        walk.end = places[count];
        true
    }

    /// Notes the free chunks whose size does not stand again in front of the chunk behind.
    fn compare(&self, row: usize, places: &[usize], heads: &[u64], walk: &mut Walk, columns: &mut Columns) {
        let mut mismatches = walk.mismatches;
        let rest = &mut *columns.mismatched;
        for (at, pair) in heads.windows(2).enumerate() {
            let (size, free) = (pair[0] & !FLAGS, pair[1] & PREV_INUSE == 0);
            // Without a branch, as there is no guessing which chunks are free.
            let again = self.word(places[at + 1]).unwrap_or(size);
            rest[mismatches] = (row + at) as u64;
            mismatches += usize::from(free & (again != size));
        }
        walk.mismatches = mismatches;
    }
}

impl Lane {
    fn grow(&mut self, most: usize) {
        self.places.resize(most, 0);
        self.heads.resize(most, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A heap of small chunks with data in them that looks like sizes, some free, some with a wrong size behind.
    fn heap(chunks: usize, seed: u64) -> Vec<u64> {
        let mut random = seed;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % below
        };
        let (mut words, mut before) = (vec![0, 0], PREV_INUSE);
        for _ in 0..chunks {
            let words_inside = if draw(500) == 0 { 2 * draw(2000) + 4 } else { 2 * draw(8) + 4 };
            let (size, used) = (8 * words_inside, draw(3).min(1));
            let at = words.len() - 1;
            words[at] = size | before;
            words.extend((2..words_inside).map(|_| [0, 0, 33, 48, 7][draw(5) as usize]));
            words.push(if used == 0 && draw(20) > 0 { size } else { 5 });
            words.push(0);
            before = used;
        }
        let at = words.len() - 1;
        words[at] = 0x2_0000 | before;
        words.extend([0; 4]);
        words
    }

    fn in_steps(words: &[u64], stop: usize, room: usize) -> (Vec<u64>, Vec<u64>, Vec<u8>, usize) {
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let walker = Walker::<8, false> { memory: &memory, origin: 0x1000, stop, rules: RULES };
        let (mut address, mut size) = (vec![0; room], vec![0; room]);
        let (mut flags, mut free, mut mismatched) = (vec![0; room], vec![0; room], vec![0; room]);
        let mut columns = Columns {
            address: &mut address,
            size: &mut size,
            flags: &mut flags,
            free: &mut free,
            mismatched: &mut mismatched,
        };
        let mut walk = Walk { chunks: 0, mismatches: 0, end: 0 };
        walker.one_by_one(room, &mut walk, &mut columns);
        mismatched.truncate(walk.mismatches);
        (address, mismatched, free, walk.end)
    }

    #[test]
    fn windows_find_what_one_walk_finds() {
        for seed in 0..6 {
            let mut words = heap(40_000, seed);
            let stop = words.len() - 6;
            if seed > 3 {
                words[stop * seed as usize / 9] = 24;
            }
            for room in [40_000, 39_999, 30_011] {
                let (walk, address, free, mismatched) = walked(&words, stop, room);
                assert_eq!((address, mismatched, free, walk.end), in_steps(&words, stop, room), "{seed} {room}");
            }
        }
    }

    #[test]
    fn windows_are_walked_where_chunks_are_small() {
        let words = heap(40_000, 1);
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let walker = Walker::<8, false> { memory: &memory, origin: 0, stop: words.len() - 6, rules: RULES };
        let mut lanes: [Lane; LANES] = Default::default();
        lanes.iter_mut().for_each(|lane| lane.grow(walker.most()));
        let room = 40_000;
        let (mut address, mut size, mut mismatched) = (vec![0; room], vec![0; room], vec![0; room]);
        let (mut flags, mut free) = (vec![0; room], vec![0; room]);
        let mut columns = Columns {
            address: &mut address,
            size: &mut size,
            flags: &mut flags,
            free: &mut free,
            mismatched: &mut mismatched,
        };
        let mut walk = Walk { chunks: 0, mismatches: 0, end: 0 };
        walker.by_windows(&mut lanes, &mut walk, &mut columns);
        assert!(walk.chunks > 1000, "{}", walk.chunks);
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
    fn a_beginning_anywhere() {
        for start in [8, 9, usize::MAX - 1, usize::MAX] {
            let mut none =
                Columns { address: &mut [0], size: &mut [0], flags: &mut [0], free: &mut [0], mismatched: &mut [0] };
            let found = walk(&[0; 64], 0, start, usize::MAX, RULES, &mut none);
            assert_eq!(found, Walk { chunks: 0, mismatches: 0, end: start });
        }
    }
}
