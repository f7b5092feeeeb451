//! The edges between blocks: each word of a block that points into another, once for each that it points into.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use crate::digraph::{Bits, MOST};
use crate::fallible::{filled, push, shrink, Error, Result};
use crate::gather::{Gathered, Hints, BLOCKS};
use crate::memory::{prefetch_item, Spans};
use crate::parallel::run_parts;
use crate::scan::{for_each_hit, Hit, Index, Pointers};
use crate::sized;

const ROWS: usize = sized(1 << 13, 2); // of a portion, at most
const BYTES: u64 = sized(1 << 22, 32) as u64; // of a portion, before it is ended
const PORTIONS: u64 = sized(1 << 12, 4) as u64; // for their bytes' sake
const STRETCH: u64 = sized(1 << 20, 24) as u64; // bytes of one block that are looked at in one go
const PATIENCE: u64 = sized(1 << 20, 24) as u64; // bytes between two looks at the clock
const VISIT: u64 = sized(1 << 6, 8) as u64; // so many bytes are looked at while a block is found
const FEW: usize = sized(12, 2); // targets of a block that are looked through one by one
const INTERIOR: u32 = 1 << 31;

/// A search for edges that can be left and taken up again.
pub struct Job<'a> {
    portions: Vec<Portion>,
    done: Vec<bool>,
    shared: Shared<'a>,
}

struct Shared<'a> {
    memory: &'a Spans<'a>,
    index: &'a Index<'a>,
    pointers: Pointers,
    live: &'a [u8],
    most: u64,
    found: AtomicU64,
    full: AtomicBool,
    spare: Mutex<Vec<Seen>>,
}

/// Rows in a stretch, and their edges.
struct Portion {
    rows: Range<usize>,
    /// How many bytes of the row that `rows` begins with were looked at.
    from: u64,
    counts: Vec<u32>,
    /// Targets, those that are pointed into with [`INTERIOR`].
    to: Vec<u32>,
    row: Row,
    told: usize,
    hits: Vec<(u64, Hit)>,
}

/// The row that is looked at.
#[derive(Default)]
struct Row {
    first: usize,
    seen: Option<Seen>,
    /// Whether something was pointed into before its beginning was pointed at.
    mixed: bool,
}

/// The targets of a row that has many.
struct Seen {
    at_all: Bits,
    beginning: Bits,
}

impl<'a> Job<'a> {
    /// Prepares the search for edges between blocks with a non-zero byte in `live`, one for each of the index, of which
    /// there must not be too many.
    pub fn new(
        memory: &'a Spans<'a>,
        index: &'a Index<'a>,
        pointers: Pointers,
        live: &'a [u8],
        most: u64,
    ) -> Result<Self> {
        if live.len() != index.len() || index.len() > MOST {
            return Err(Error::BadArgument);
        }
        let (found, full, spare) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
        let shared = Shared { memory, index, pointers, live, most, found, full, spare };
        let portions = portions(index)?;
        Ok(Job { done: filled(portions.len(), false)?, portions, shared })
    }

    /// Searches until the deadline; returns whether it has come to an end, which it has too with more than `most`.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        let shared = &self.shared;
        let done = run_parts(&mut self.portions, &mut self.done, deadline, |one, deadline| one.run(shared, deadline))?;
        Ok(done || self.full())
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.shared.index.len()
    }

    /// How many edges were found.
    pub fn edges(&self) -> usize {
        self.portions.iter().map(|portion| portion.to.len()).sum()
    }

    /// Whether there are more than there may be.
    pub fn full(&self) -> bool {
        self.shared.full.load(Ordering::Relaxed)
    }

    /// Writes where the edges of each row begin, what they lead to, and whether into the middle.
    pub fn write(&self, first: &mut [u64], to: &mut [u32], interior: &mut [u8]) {
        let counts = self.portions.iter().flat_map(|portion| &portion.counts);
        let mut sum = 0;
        for (begin, &count) in first.iter_mut().zip(std::iter::once(&0).chain(counts)) {
            sum += u64::from(count);
            *begin = sum;
        }
        let mut at = 0;
        for Portion { to: found, .. } in &self.portions {
            let (to, interior) = (&mut to[at..at + found.len()], &mut interior[at..at + found.len()]);
            at += found.len();
            for ((to, interior), &one) in to.iter_mut().zip(interior).zip(found) {
                *to = one & !INTERIOR;
                *interior = (one >> 31) as u8;
            }
        }
    }
}

fn portions(index: &Index) -> Result<Vec<Portion>> {
    let size = |row| index.block(row).1.saturating_add(VISIT);
    let total = (0..index.len()).fold(0u64, |sum, row| sum.saturating_add(size(row)));
    let most = BYTES.max(total / PORTIONS);
    let (mut portions, mut from, mut bytes) = (Vec::new(), 0, 0u64);
    for row in 0..index.len() {
        bytes = bytes.saturating_add(size(row));
        if bytes >= most || row + 1 - from == ROWS || row + 1 == index.len() {
            push(&mut portions, Portion::new(from..row + 1))?;
            from = row + 1;
            bytes = 0;
        }
    }
    Ok(portions)
}

impl Portion {
    fn new(rows: Range<usize>) -> Self {
        let (counts, to, hits) = (Vec::new(), Vec::new(), Vec::new());
        Portion { rows, from: 0, counts, to, row: Row::default(), told: 0, hits }
    }

    /// Looks at a stretch of the first row, and goes on to the next at its end. Returns the bytes that it was work of.
    fn look(&mut self, shared: &Shared, hints: &mut Hints) -> Result<u64> {
        let Shared { memory, index, pointers, live, .. } = *shared;
        let row = self.rows.start;
        let (start, size) = index.block(row);
        let mut worked = VISIT;
        if live[row] == 0 {
            self.end_row(shared)?;
            return Ok(worked);
        }
        while self.from < size {
            if worked >= STRETCH {
                return Ok(worked);
            }
            let place = start + self.from; // in the block, so in the address space
            let bytes = memory.from(place, &mut hints.span);
            if bytes.is_empty() {
                worked += VISIT;
                match memory.next_start(place) {
                    Some(next) => self.from = next - start,
                    None => break,
                }
                continue;
            }
            // A stretch ends at an aligned address, so that no word lies across two.
            let most = STRETCH - (place & (pointers.words.size as u64 - 1));
            let length = (bytes.len() as u64).min(size - self.from).min(most);
            let (here, to) = (&mut self.row, &mut self.to);
            for_each_hit(&bytes[..length as usize], place, pointers, index, &mut hints.table, |_, hit| {
                if live[hit.row] != 0 && hit.row != row {
                    here.add(to, hit.row as u32, hit.interior, shared)?;
                }
                Ok(())
            })?;
            self.from += length;
            worked += length;
        }
        self.end_row(shared)?;
        Ok(worked)
    }

    /// Looks at the next blocks, as far as they are small; returns the bytes that it was work of, 0 where the first is
    /// not.
    fn look_at_some(&mut self, shared: &Shared, hints: &mut Hints, gathered: &mut Gathered) -> Result<u64> {
        let Shared { memory, index, pointers, live, .. } = *shared;
        let mut ends = [0; BLOCKS]; // of the rows' words
        let mut count = 0;
        for (row, end) in self.rows.clone().zip(&mut ends) {
            let (start, size) = index.block(row);
            if live[row] != 0 {
                match Gathered::fetch(memory, start, size, hints) {
                    Some(block) if self.from == 0 => gathered.add(start, block, pointers)?,
                    _ => break,
                }
            }
            *end = gathered.len() as u64;
            count += 1;
        }
        let worked = gathered.len() as u64 + VISIT * count as u64;
        let mut hits = std::mem::take(&mut self.hits);
        gathered.for_each_hit(pointers, index, hints, |place, hit| {
            prefetch_item(live, hit.row);
            push(&mut hits, (place, hit))
        })?;
        let last = self.rows.start + count;
        for (place, hit) in hits.drain(..) {
            while place >= ends[self.rows.start + count - last] {
                self.end_row(shared)?;
            }
            if live[hit.row] != 0 && hit.row != self.rows.start {
                self.row.add(&mut self.to, hit.row as u32, hit.interior, shared)?;
            }
        }
        self.hits = hits;
        while self.rows.start < last {
            self.end_row(shared)?;
        }
        Ok(worked)
    }

    fn end_row(&mut self, shared: &Shared) -> Result<()> {
        self.row.end(&mut self.to, &shared.spare);
        push(&mut self.counts, (self.to.len() - self.row.first) as u32)?;
        self.row.first = self.to.len();
        self.rows.start += 1;
        self.from = 0;
        Ok(())
    }

    /// Counts the edges of rows that have ended; returns whether the search goes on.
    fn tell(&mut self, shared: &Shared) -> bool {
        let new = (self.row.first - self.told) as u64;
        self.told = self.row.first;
        if shared.found.fetch_add(new, Ordering::Relaxed).saturating_add(new) > shared.most {
            shared.full.store(true, Ordering::Relaxed);
        }
        !shared.full.load(Ordering::Relaxed)
    }

    /// Looks at rows until the deadline; returns whether it has come to an end.
    fn run(&mut self, shared: &Shared, deadline: Instant) -> Result<bool> {
        let (mut worked, mut hints, mut gathered) = (0, Hints::default(), Gathered::default());
        while !self.rows.is_empty() {
            worked += match self.look_at_some(shared, &mut hints, &mut gathered)? {
                0 => self.look(shared, &mut hints)?,
                bytes => bytes,
            };
            if worked >= PATIENCE {
                if !self.tell(shared) || Instant::now() >= deadline {
                    return Ok(self.rows.is_empty());
                }
                worked = 0;
            }
        }
        self.tell(shared);
        shrink(&mut self.to);
        shrink(&mut self.counts);
        self.hits = Vec::new();
        Ok(true)
    }
}

impl Row {
    /// Adds a target, unless there is an edge to it; one to its beginning takes the place of one to its middle.
    #[inline]
    fn add(&mut self, to: &mut Vec<u32>, target: u32, interior: bool, shared: &Shared) -> Result<()> {
        let fresh = match &mut self.seen {
            None => self.add_to_few(to, target, interior),
            Some(seen) => seen.add(target as usize, interior, &mut self.mixed),
        };
        if !fresh {
            return Ok(());
        }
        push(to, if interior { target | INTERIOR } else { target })?;
        if self.seen.is_none() && to.len() - self.first > FEW {
            let mut seen = match taken(&shared.spare) {
                Some(seen) => seen,
                None => Seen::new(shared.index.len())?,
            };
            for &one in &to[self.first..] {
                seen.add((one & !INTERIOR) as usize, one & INTERIOR != 0, &mut self.mixed);
            }
            self.seen = Some(seen);
        }
        Ok(())
    }

    #[inline]
    fn add_to_few(&mut self, to: &mut Vec<u32>, target: u32, interior: bool) -> bool {
        match to[self.first..].iter().position(|&one| one & !INTERIOR == target) {
            None => true,
            Some(at) if to[self.first + at] != target && !interior => {
                to.remove(self.first + at);
                true
            }
            Some(_) => false,
        }
    }

    /// Leaves out edges to middles of what has one to its beginning, and forgets what was seen.
    fn end(&mut self, to: &mut Vec<u32>, spare: &Mutex<Vec<Seen>>) {
        let mut seen = match self.seen.take() {
            Some(seen) => seen,
            None => return,
        };
        let mut kept = self.first;
        for at in self.first..to.len() {
            let one = to[at];
            let stays = !self.mixed || one & INTERIOR == 0 || !seen.beginning.has((one & !INTERIOR) as usize);
            if stays {
                to[kept] = one;
                kept += 1;
            }
            // What does not stay is met again, as what has an edge to its beginning.
            if stays {
                seen.at_all.remove((one & !INTERIOR) as usize);
            }
        }
        to.truncate(kept);
        for &one in &to[self.first..] {
            seen.beginning.remove(one as usize & !INTERIOR as usize);
        }
        self.mixed = false;
        if let Ok(mut spare) = spare.lock() {
            let _ = push(&mut spare, seen); // or it is given up
        }
    }
}

fn taken(spare: &Mutex<Vec<Seen>>) -> Option<Seen> {
    spare.lock().ok()?.pop()
}

impl Seen {
    fn new(rows: usize) -> Result<Self> {
        Ok(Seen { at_all: Bits::new(rows)?, beginning: Bits::new(rows)? })
    }

    /// Returns whether this is the first edge to a target, or the first to its beginning.
    #[inline]
    fn add(&mut self, target: usize, interior: bool, mixed: &mut bool) -> bool {
        let fresh = self.at_all.add(target);
        if interior {
            return fresh;
        }
        let begun = self.beginning.add(target);
        *mixed |= begun && !fresh;
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Span, Words};
    use crate::scan::HEADERS;
    use std::time::Duration;

    const POINTERS: Pointers =
        Pointers { words: Words { size: 8, swapped: false }, clear: 0, mangled: false, headers: [0; HEADERS], part: 0 };

    struct Found {
        first: Vec<u64>,
        to: Vec<u32>,
        interior: Vec<u8>,
    }

    /// Blocks of the given words, behind each other from 0x1000 on.
    fn found(rows: &[&[u64]], live: &[u8], most: u64) -> Option<Found> {
        let bytes: Vec<u8> = rows.iter().flat_map(|row| row.iter()).flat_map(|word| word.to_ne_bytes()).collect();
        let size: Vec<u64> = rows.iter().map(|row| 8 * row.len() as u64).collect();
        let ends = size.iter().scan(0x1000, |end, size| {
            *end += size;
            Some(*end)
        });
        let address: Vec<u64> = std::iter::once(0x1000).chain(ends).take(size.len()).collect();
        let memory = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let index = Index::new(&address, &size).unwrap();
        let mut job = Job::new(&memory, &index, POINTERS, live, most).unwrap();
        while !job.run(Instant::now() + Duration::from_millis(1)).unwrap() {}
        if job.full() {
            return None;
        }
        let mut found =
            Found { first: vec![0; rows.len() + 1], to: vec![9; job.edges()], interior: vec![9; job.edges()] };
        job.write(&mut found.first, &mut found.to, &mut found.interior);
        Some(found)
    }

    #[test]
    fn a_beginning_goes_before_a_middle_and_each_target_comes_once() {
        let rows: [&[u64]; 4] = [&[0x1024, 0x1020, 0x1021, 0x1000], &[0x1000, 0x1008, 7], &[0x1038, 0], &[0x1020]];
        let all = found(&rows, &[1; 4], 9).unwrap();
        assert_eq!((all.first, all.to), (vec![0, 1, 2, 2, 3], vec![1, 0, 1]));
        assert_eq!(all.interior, [0, 0, 0]);
    }

    #[test]
    fn what_does_not_count_has_no_edge() {
        let rows: [&[u64]; 3] = [&[0x1008, 0][..1], &[0x1010], &[0x1000]];
        let some = found(&rows, &[1, 0, 1], 9).unwrap();
        assert_eq!((some.first, some.to), (vec![0, 0, 0, 1], vec![0]));
    }

    #[test]
    fn no_more_than_are_asked_for() {
        let rows: [&[u64]; 3] = [&[0x1008], &[0x1010], &[0x1000]];
        assert!(found(&rows, &[1; 3], 2).is_none());
        assert_eq!(found(&rows, &[1; 3], 3).unwrap().to, [1, 2, 0]);
    }

    #[test]
    fn a_row_with_many_targets_as_one_with_few() {
        // A block that points at 1000 others of 16 bytes: into each, and at the beginnings of every third, twice.
        let (count, size) = (1000, 16u64);
        let of = |row: u64| 0x1000 + 8 * (2 * count + count / 3 + 1) + size * row;
        let mut words: Vec<u64> = (0..count).map(|row| of(row) + 3).collect();
        words.extend((0..count / 3 + 1).map(|at| of(3 * at)));
        words.extend((0..count).map(|row| of(row) + 5 * (row % 3)));
        let mut rows: Vec<&[u64]> = vec![&words];
        rows.extend((0..count).map(|_| &[0u64, 0][..]));
        let all = found(&rows, &vec![1; rows.len()], 5000).unwrap();
        let row = |at: u64| at as u32 + 1;
        let middles = (0..count).filter(|at| at % 3 != 0).map(|at| (row(at), 1));
        let expected: Vec<_> = middles.chain((0..count / 3 + 1).map(|at| (row(3 * at), 0))).collect();
        assert_eq!(all.to.into_iter().zip(all.interior).collect::<Vec<_>>(), expected);
    }
}
