//! Words that point into blocks: an index of blocks by address, and memory scanned against it.

use std::time::Instant;

use crate::fallible::{filled, push, shrink, with_room, Error, Result};
use crate::memory::{prefetch_item, Span, Words};
use crate::parallel::{run_parts, share, PART};
use crate::sized;

const PAGE_SHIFT: u32 = 12; // of the smallest pages
const FAR: u64 = 1 << 24; // bytes of a gap or a block that end a table
const GROUP: u64 = 32; // granules
const STEP: usize = sized(1 << 18, 3); // rows between two looks at the clock
const MOST_BLOCKS: usize = 1 << 31; // a row leaves a bit of 32
const WINDOW: usize = sized(512, 3); // words that are looked up together
const FEW: usize = sized(32, 2); // words for which that is not worth it
const MANGLING: u32 = 12; // glibc's PROTECT_PTR (malloc/malloc.c): a link's own address, shifted so

/// Blocks by address.
///
/// Blocks that lie near each other have a table. Its granule is the largest power of two that the distances of their
/// beginnings are multiples of; so a bit for each granule tells where blocks begin, and the number of bits before is a
/// row. Where blocks are so far apart that bits would take too much, pages lead to rows: addresses and sizes may be
/// anything, and memory must not depend on them.
pub struct Index<'a> {
    address: &'a [u64],
    size: &'a [u64],
    tables: Vec<Table>,
}

struct Table {
    low: u64,
    high: u64, // of its last byte
    shift: u32,
    until: usize,
    rows: Rows,
}

enum Rows {
    /// For [`GROUP`] granules each: the first row that begins in them or behind, above a bit for each that begins.
    Groups(Vec<u64>),
    /// For each page, the first block that ends in it or behind; at most two pages a block.
    Pages(Vec<u32>),
}

/// A block that a word points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub row: usize,
    pub interior: bool,
}

impl<'a> Index<'a> {
    /// Takes blocks that must be sorted and disjoint; a block of no bytes is taken for one.
    pub fn new(address: &'a [u64], size: &'a [u64]) -> Result<Self> {
        let mut builder = Builder::new(address, size)?;
        while !builder.build()? {}
        Ok(builder.index)
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// Whether it is the index of these very columns.
    pub fn is_of(&self, address: &[u64], size: &[u64]) -> bool {
        let same = |one: &[u64], other: &[u64]| one.as_ptr() == other.as_ptr() && one.len() == other.len();
        same(self.address, address) && same(self.size, size)
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.address.is_empty()
    }

    /// The address and the bytes of a block.
    pub fn block(&self, row: usize) -> (u64, u64) {
        (self.address[row], self.size[row])
    }

    fn last(&self, row: usize) -> Result<u64> {
        self.address[row].checked_add(self.size[row].max(1) - 1).ok_or(Error::BadArgument)
    }

    /// Returns the block that an address lies in, or None. `hint` is the number of a table that is likely.
    #[inline]
    pub fn find(&self, address: u64, hint: &mut usize) -> Option<Hit> {
        self.find_in(self.table_of(address, hint)?, address)
    }

    #[inline(always)]
    fn table_of(&self, address: u64, hint: &mut usize) -> Option<&Table> {
        match self.tables.get(*hint) {
            Some(table) if address >= table.low && address <= table.high => Some(table),
            _ => {
                let at = self.tables.partition_point(|table| table.low <= address).checked_sub(1)?;
                if address > self.tables[at].high {
                    return None;
                }
                *hint = at;
                Some(&self.tables[at])
            }
        }
    }

    /// An address that is in a table.
    #[inline(always)]
    fn find_in(&self, table: &Table, address: u64) -> Option<Hit> {
        let place = address - table.low;
        let row = match &table.rows {
            Rows::Groups(groups) => {
                let (granule, rest) = (place >> table.shift, place & ((1 << table.shift) - 1));
                let group = *groups.get((granule / GROUP) as usize)?;
                let begun = group as u32 & (u32::MAX >> (GROUP - 1 - granule % GROUP));
                let row = ((group >> 32) as usize + begun.count_ones() as usize).checked_sub(1)?;
                if rest == 0 && begun >> (granule % GROUP) != 0 {
                    return Some(Hit { row, interior: false }); // no block is looked at: its size does not matter
                }
                row
            }
            Rows::Pages(rows) => {
                let page = (place >> table.shift) as usize;
                let from = *rows.get(page)? as usize;
                let until = rows.get(page + 1).map_or(table.until, |&row| (row as usize + 1).min(table.until));
                (from + self.address[from..until].partition_point(|&start| start <= address)).checked_sub(1)?
            }
        };
        let start = *self.address.get(row)?;
        if address.wrapping_sub(start) >= self.size[row].max(1) {
            return None;
        }
        Some(Hit { row, interior: address != start })
    }

    /// Asks for what [`Index::find`] will need.
    #[inline(always)]
    fn prefetch(&self, table: &Table, address: u64) {
        let place = (address - table.low) >> table.shift;
        match &table.rows {
            Rows::Groups(groups) => prefetch_item(groups, (place / GROUP) as usize),
            Rows::Pages(rows) => prefetch_item(rows, place as usize),
        }
    }

    /// Finds the row of the block that each address lies in, or -1; with `begins` that it is the beginning of.
    pub fn find_all(&self, addresses: &[u64], begins: bool, rows: &mut [i64]) {
        let parts = addresses.chunks(PART).zip(rows.chunks_mut(PART));
        share(addresses.len(), parts, |(addresses, rows)| self.find_part(addresses, begins, rows));
    }

    fn find_part(&self, addresses: &[u64], begins: bool, rows: &mut [i64]) {
        let mut hint = 0;
        for (addresses, rows) in addresses.chunks(WINDOW).zip(rows.chunks_mut(WINDOW)) {
            for &address in addresses {
                if let Some(table) = self.table_of(address, &mut hint) {
                    self.prefetch(table, address);
                }
            }
            for (&address, row) in addresses.iter().zip(rows) {
                let found = self.find(address, &mut hint).filter(|hit| !(begins && hit.interior));
                *row = found.map_or(-1, |hit| hit.row as i64);
            }
        }
    }

    /// The least and the greatest address that can be in a block; the first is the greater when there is none.
    pub fn bounds(&self) -> (u64, u64) {
        match (self.tables.first(), self.tables.last()) {
            (Some(first), Some(last)) => (first.low, last.high),
            _ => (u64::MAX, 0),
        }
    }
}

/// An index that is being built; it can be left and taken up again.
pub struct Builder<'a> {
    index: Index<'a>,
    /// The rows from here to `row` are of the next table.
    from: usize,
    row: usize,
    /// The last byte of these rows, and all bits of their distances.
    last: u64,
    distances: u64,
    filling: Option<Table>,
}

impl<'a> Builder<'a> {
    /// Takes what [`Index::new`] takes.
    pub fn new(address: &'a [u64], size: &'a [u64]) -> Result<Self> {
        if address.len() != size.len() || address.len() >= MOST_BLOCKS {
            return Err(Error::BadArgument);
        }
        let index = Index { address, size, tables: Vec::new() };
        Ok(Builder { index, from: 0, row: 0, last: 0, distances: 0, filling: None })
    }

    /// Builds until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        while !self.build()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The index, when it is built; once.
    pub fn take_index(&mut self) -> Index<'a> {
        let (address, size) = (self.index.address, self.index.size);
        Index { address, size, tables: std::mem::take(&mut self.index.tables) }
    }

    fn build(&mut self) -> Result<bool> {
        match self.filling.take() {
            Some(table) => self.fill(table)?,
            None if self.from < self.index.len() => self.measure()?,
            None => return Ok(true),
        }
        Ok(false)
    }

    /// Looks at more rows of the next table, and begins it at its end.
    fn measure(&mut self) -> Result<()> {
        let index = &self.index;
        let until = index.len().min(self.row + STEP);
        if self.row == self.from {
            self.last = index.last(self.from)?;
            self.distances = 0;
            self.row += 1;
        }
        let (low, mut last, mut distances) = (index.address[self.from], self.last, self.distances);
        let mut ended = false;
        while self.row < until {
            let (start, next) = (index.address[self.row], index.last(self.row)?);
            if start <= last {
                return Err(Error::BadArgument);
            }
            if next - last > FAR || last - index.address[self.row - 1] > FAR {
                ended = true;
                break;
            }
            distances |= start - low;
            last = next;
            self.row += 1;
        }
        self.last = last;
        self.distances = distances;
        if ended || self.row == index.len() {
            self.filling = Some(self.begun()?);
        }
        Ok(())
    }

    fn begun(&self) -> Result<Table> {
        let (low, high, blocks) = (self.index.address[self.from], self.last, (self.row - self.from) as u64);
        let mut shift = self.distances.trailing_zeros().min(63);
        let groups = ((high - low) >> shift) / GROUP + 1;
        let rows = if groups <= (2 * blocks + ((high - low) >> 8)).min(16 * blocks) {
            Rows::Groups(with_room(groups as usize)?)
        } else {
            shift = PAGE_SHIFT;
            while (high - low) >> shift > 2 * blocks {
                shift += 1;
            }
            Rows::Pages(with_room(((high - low) >> shift) as usize + 1)?)
        };
        Ok(Table { low, high, shift, until: self.row, rows })
    }

    /// Enters more rows into a table; it is the index's when it has all.
    fn fill(&mut self, mut table: Table) -> Result<()> {
        let (index, until) = (&self.index, self.row.min(self.from + STEP));
        match &mut table.rows {
            Rows::Groups(groups) => {
                for row in self.from..until {
                    let granule = (index.address[row] - table.low) >> table.shift;
                    let at = (granule / GROUP) as usize;
                    while groups.len() <= at {
                        push(groups, (row as u64) << 32)?;
                    }
                    groups[at] |= 1 << (granule % GROUP);
                }
                if until == self.row {
                    let all = ((table.high - table.low) >> table.shift) / GROUP + 1;
                    while groups.len() < all as usize {
                        push(groups, (until as u64) << 32)?;
                    }
                }
            }
            Rows::Pages(rows) => {
                for row in self.from..until {
                    // The pages that begin at or before a block's last byte and behind that of the one before.
                    let end = ((index.last(row)? - table.low) >> table.shift) as usize;
                    while rows.len() <= end {
                        push(rows, row as u32)?;
                    }
                }
            }
        }
        self.from = until;
        if until == self.row {
            push(&mut self.index.tables, table)?;
        } else {
            self.filling = Some(table);
        }
        Ok(())
    }
}

/// Calls `found` with the place of every aligned word of `bytes` that points into a block, and what it points at; where
/// that fails, no more.
#[inline]
pub fn for_each_hit(
    bytes: &[u8],
    start: u64,
    pointers: Pointers,
    index: &Index,
    hint: &mut usize,
    found: impl FnMut(u64, Hit) -> Result<()>,
) -> Result<()> {
    let (low, high) = index.bounds();
    let words = pointers.words;
    let skipped = (start.wrapping_neg() & (words.size as u64 - 1)) as usize;
    let aligned = match bytes.get(skipped..) {
        Some(aligned) if low <= high => aligned,
        _ => return Ok(()),
    };
    let start = start.wrapping_add(skipped as u64);
    if pointers.mangled {
        for_each_mangled_hit(aligned, start, pointers, index, hint, found)
    } else if aligned.len() > FEW * words.size {
        for_each_hit_in_windows::<WINDOW, 0>(aligned, start, pointers, index, hint, found)
    } else {
        for_each_hit_in_windows::<FEW, 0>(aligned, start, pointers, index, hint, found)
    }
}

/// Apart from [`for_each_hit`], which is to stay small where it is inlined.
#[inline(never)]
fn for_each_mangled_hit(
    aligned: &[u8],
    start: u64,
    pointers: Pointers,
    index: &Index,
    hint: &mut usize,
    found: impl FnMut(u64, Hit) -> Result<()>,
) -> Result<()> {
    if aligned.len() > FEW * pointers.words.size {
        for_each_hit_in_windows::<WINDOW, WINDOW>(aligned, start, pointers, index, hint, found)
    } else {
        for_each_hit_in_windows::<FEW, FEW>(aligned, start, pointers, index, hint, found)
    }
}

/// As [`for_each_hit`]: words are tested in a row without a branch, and what the likely ones need is asked for ahead.
///
/// `REVEALED` is `WORDS` where mangled words count, else 0.
#[inline(always)]
fn for_each_hit_in_windows<const WORDS: usize, const REVEALED: usize>(
    aligned: &[u8],
    start: u64,
    pointers: Pointers,
    index: &Index,
    hint: &mut usize,
    mut found: impl FnMut(u64, Hit) -> Result<()>,
) -> Result<()> {
    let size = pointers.words.size;
    let pick = match (size, pointers.words.swapped) {
        (8, false) => pick::<8, false, WORDS, REVEALED>,
        (8, true) => pick::<8, true, WORDS, REVEALED>,
        (_, false) => pick::<4, false, WORDS, REVEALED>,
        (_, true) => pick::<4, true, WORDS, REVEALED>,
    };
    let mut picked = Picked { values: [0; WORDS], places: [0; WORDS], revealed: [0; REVEALED] };
    for (number, window) in aligned.chunks(WORDS * size).enumerate() {
        let start = start.wrapping_add((number * WORDS * size) as u64);
        let count = pick(window, start, pointers.clear, index.bounds(), &mut picked);
        for &value in &picked.values[..count] {
            if let Some(table) = index.table_of(value, hint) {
                index.prefetch(table, value);
            }
        }
        for &value in picked.revealed.iter().take(count) {
            if let Some(table) = index.table_of(value, hint) {
                index.prefetch(table, value);
            }
        }
        for (number, (&value, &at)) in picked.values[..count].iter().zip(&picked.places).enumerate() {
            let (mut value, mut hit) = (value, index.find(value, hint));
            if REVEALED != 0 && hit.is_none() {
                value = picked.revealed[number];
                hit = index.find(value, hint);
            }
            if let Some(mut hit) = hit {
                let (block, bytes) = index.block(hit.row);
                hit.interior = hit.interior && !pointers.is_behind_header(value - block, bytes);
                found(start.wrapping_add(u64::from(at) * size as u64), hit)?;
            }
        }
    }
    Ok(())
}

struct Picked<const WORDS: usize, const REVEALED: usize> {
    values: [u64; WORDS],
    places: [u16; WORDS],
    revealed: [u64; REVEALED],
}

/// Picks the words between bounds, as they stand or revealed; returns how many.
#[inline(always)]
fn pick<const SIZE: usize, const SWAPPED: bool, const WORDS: usize, const REVEALED: usize>(
    window: &[u8],
    start: u64,
    clear: u64,
    bounds: (u64, u64),
    picked: &mut Picked<WORDS, REVEALED>,
) -> usize {
    let (low, reach) = (bounds.0, bounds.1 - bounds.0);
    let mut count = 0;
    for (at, word) in window.chunks_exact(SIZE).take(WORDS).enumerate() {
        let stored = Words { size: SIZE, swapped: SWAPPED }.decode(word);
        let value = stored & !clear;
        let mut likely = value.wrapping_sub(low) <= reach;
        // There are no more words than places; the mask says so without a branch.
        picked.values[count % WORDS] = value;
        picked.places[count % WORDS] = at as u16;
        if REVEALED != 0 {
            let revealed = (stored ^ start.wrapping_add((at * SIZE) as u64) >> MANGLING) & !clear;
            picked.revealed[count % WORDS] = revealed;
            likely |= revealed.wrapping_sub(low) <= reach;
        }
        count += usize::from(likely);
    }
    count
}

/// How pointers are stored.
#[derive(Clone, Copy, Debug)]
pub struct Pointers {
    pub words: Words,
    /// Bits that are no part of the address: tags.
    pub clear: u64,
    /// Whether a word that leads to no block as it stands is one XORed with its own address >> 12, as glibc's
    /// safe-linking stores links; `clear` is cleared of what that reveals.
    pub mangled: bool,
    /// Bytes of headers: a pointer so far into a block counts as one to its beginning. 0 is none.
    pub headers: [u64; HEADERS],
    /// Where headers grow with their blocks: one is the first such part of what was asked for. 0 is none.
    pub part: u64,
}

const GIVEN: u64 = 16; // bytes; and of large blocks, which are whole pages:
const GIVEN_PART: u64 = 32;

/// How many different headers blocks may have.
pub const HEADERS: usize = 8;

impl Pointers {
    /// Whether a pointer so many bytes into a block is one to what lies behind the block's header.
    #[inline(always)]
    fn is_behind_header(&self, into: u64, size: u64) -> bool {
        self.headers.contains(&into) || self.part != 0 && self.is_behind_part(into, size)
    }

    /// Whether so many bytes are the first part of a block, but for what the allocator gives beyond what was asked for.
    fn is_behind_part(&self, into: u64, size: u64) -> bool {
        into.checked_mul(self.part).map_or(false, |asked| asked <= size && size - asked < GIVEN + size / GIVEN_PART)
    }
}

/// Bytes that are scanned at a time, of which `most` is meant.
pub const PIECE: usize = sized(1 << 20, 64);

/// A scan of stretches of memory that can be left and taken up again.
pub struct Job<'a> {
    parts: Vec<Piece<'a>>,
    done: Vec<bool>,
}

impl<'a> Job<'a> {
    /// Prepares the scan. Only blocks with a non-zero byte in `wanted` count; `most` bounds the words found in each
    /// mebibyte that is scanned.
    pub fn new(
        spans: &[Span<'a>],
        index: &'a Index<'a>,
        wanted: Option<&'a [u8]>,
        pointers: Pointers,
        most: usize,
    ) -> Result<Self> {
        let mut parts = Vec::new();
        for span in spans {
            // Pieces begin at aligned addresses, so that no word lies across two.
            let skipped = (span.start.wrapping_neg() & (pointers.words.size as u64 - 1)) as usize;
            let bytes = span.bytes.get(skipped..).unwrap_or(&[]);
            for (at, piece) in bytes.chunks(PIECE).enumerate() {
                let start = span.start.wrapping_add((skipped + at * PIECE) as u64);
                let kept = Vec::new();
                push(&mut parts, Piece { bytes: piece, start, index, wanted, pointers, most, kept, full: false })?;
            }
        }
        Ok(Job { done: filled(parts.len(), false)?, parts })
    }

    /// Scans until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        run_parts(&mut self.parts, &mut self.done, deadline, |piece, _| piece.scan())
    }

    /// How many words were found.
    pub fn hits(&self) -> usize {
        self.parts.iter().map(|part| part.kept.len()).sum()
    }

    /// Whether some mebibyte had more than could be kept.
    pub fn full(&self) -> bool {
        self.parts.iter().any(|part| part.full)
    }

    /// Writes the places of the words found, the rows of the blocks, and whether they point inside.
    pub fn write(&self, places: &mut [u64], rows: &mut [u32], interior: &mut [u8]) {
        let mut columns = places.iter_mut().zip(rows).zip(interior);
        for part in &self.parts {
            for (kept, ((place, row), interior)) in part.kept.iter().zip(&mut columns) {
                *place = part.start.wrapping_add(u64::from(kept.place));
                *row = kept.row & !INTERIOR;
                *interior = u8::from(kept.row & INTERIOR != 0);
            }
        }
    }
}

/// Of a word found: 8 bytes, as there may be as many as words.
#[derive(Clone, Copy)]
struct Kept {
    place: u32, // in the piece
    row: u32,   // and [`INTERIOR`]
}

const INTERIOR: u32 = 1 << 31;

struct Piece<'a> {
    bytes: &'a [u8],
    start: u64,
    index: &'a Index<'a>,
    wanted: Option<&'a [u8]>,
    pointers: Pointers,
    most: usize,
    kept: Vec<Kept>,
    full: bool,
}

impl Piece<'_> {
    /// Scans all of it; returns that it is done.
    fn scan(&mut self) -> Result<bool> {
        let (start, wanted, most) = (self.start, self.wanted, self.most);
        let (all, full) = (&mut self.kept, &mut self.full);
        for_each_hit(self.bytes, start, self.pointers, self.index, &mut 0, |place, hit| {
            if wanted.map_or(true, |wanted| wanted[hit.row] != 0) {
                if all.len() < most {
                    let row = hit.row as u32 | if hit.interior { INTERIOR } else { 0 };
                    push(all, Kept { place: place.wrapping_sub(start) as u32, row })?;
                } else {
                    *full = true;
                }
            }
            Ok(())
        })?;
        shrink(all);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NATIVE: Pointers =
        Pointers { words: Words { size: 8, swapped: false }, clear: 0, mangled: false, headers: [0; HEADERS], part: 0 };

    #[test]
    fn blocks_near_and_far() {
        let address = [0x1000, 0x1020, 0x5000, 0x7f00_0000_0000];
        let size = [0x18, 0x3000, 0, 8];
        let index = Index::new(&address, &size).unwrap();
        let find = |at| index.find(at, &mut 0).map(|hit| (hit.row, hit.interior));
        assert_eq!(find(0x1000), Some((0, false)));
        assert_eq!(find(0x1017), Some((0, true)));
        assert_eq!(find(0x1018), None);
        assert_eq!(find(0x401f), Some((1, true)));
        assert_eq!(find(0x4020), None);
        assert_eq!(find(0x5000), Some((2, false)));
        assert_eq!(find(0x5001), None);
        assert_eq!(find(0x7f00_0000_0007), Some((3, true)));
        assert_eq!(find(0x7f00_0000_0008), None);
        assert_eq!(find(0), None);
        assert_eq!(find(u64::MAX), None);
    }

    #[test]
    fn every_address_as_a_plain_search_says() {
        let address: Vec<u64> = (0..3000).map(|row| 0x10_0000 + row * 48 + (row / 100) * 5000).collect();
        let size: Vec<u64> = (0..3000).map(|row| 1 + (row * 7) % 48).collect();
        let index = Index::new(&address, &size).unwrap();
        for at in (0x0f_ff00..0x10_0000 + 400_000).step_by(3) {
            let row = address.partition_point(|&start| start <= at).checked_sub(1);
            let expected = row.filter(|&row| at - address[row] < size[row]);
            assert_eq!(index.find(at, &mut 0).map(|hit| hit.row), expected, "{at:#x}");
        }
    }

    #[test]
    fn blocks_that_overlap_are_refused() {
        assert!(Index::new(&[8, 16], &[9, 1]).is_err());
        assert!(Index::new(&[16, 8], &[1, 1]).is_err());
        assert!(Index::new(&[u64::MAX], &[2]).is_err());
        assert!(Index::new(&[8], &[]).is_err());
        assert!(Index::new(&[], &[]).unwrap().find(5, &mut 0).is_none());
    }

    #[test]
    fn words_that_point_into_blocks() {
        let index = Index::new(&[0x1000, 0x2000], &[16, 16]).unwrap();
        let words = [0x1000u64, 7, 0x2008, 0x1010, 0x2000];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let spans = [Span { start: 0x9004, bytes: &[&[0; 4], &bytes[..]].concat() }];
        let later = Instant::now() + Duration::from_secs(60);
        let mut job = Job::new(&spans, &index, None, NATIVE, 100).unwrap();
        assert!(job.run(later).unwrap());
        let (mut places, mut rows, mut interior) = ([0; 3], [0; 3], [0; 3]);
        assert_eq!((job.hits(), job.full()), (3, false));
        job.write(&mut places, &mut rows, &mut interior);
        assert_eq!((places, rows, interior), ([0x9008, 0x9018, 0x9028], [0, 1, 1], [0, 1, 0]));
        let mut some = Job::new(&spans, &index, Some(&[0, 1]), NATIVE, 1).unwrap();
        assert!(some.run(later).unwrap());
        assert_eq!((some.hits(), some.full()), (1, true));
    }

    #[test]
    fn mangled_words_count_where_they_lead_nowhere_as_they_stand() {
        let index = Index::new(&[0x1000, 0x2000, 0x4000_0000], &[16, 16, 16]).unwrap();
        let (start, mangled) = (0x7000_1000, |at: u64, pointer: u64| pointer ^ (0x7000_1000 + 8 * at) >> 12);
        let twice = 0x1008; // revealed it is 0x7_1009, in no block
        let words = [mangled(0, 0x1000), 0x2004, mangled(2, 0x2001), mangled(3, 0x4000_0008), twice, mangled(5, 0)];
        let many = words.iter().copied().chain((6..3000).map(|at| mangled(at, 0x2000 + at % 17)));
        let bytes: Vec<u8> = many.flat_map(|word| word.to_ne_bytes()).collect();
        let pointers = Pointers { mangled: true, ..NATIVE };
        let hits = |bytes, pointers| {
            let mut hits = Vec::new();
            for_each_hit(bytes, start, pointers, &index, &mut 0, |place, hit| {
                push(&mut hits, ((place - start) / 8, hit.row, hit.interior))
            })
            .unwrap();
            hits
        };
        assert_eq!(hits(&bytes[..48], NATIVE), [(1, 1, true), (4, 0, true)]);
        let some = [(0, 0, false), (1, 1, true), (2, 1, true), (3, 2, true), (4, 0, true)];
        assert_eq!(hits(&bytes[..48], pointers), some);
        let rest = (6..3000).filter(|at| at % 17 != 16).map(|at| (at, 1, at % 17 != 0));
        assert_eq!(hits(&bytes, pointers), some.into_iter().chain(rest).collect::<Vec<_>>());
        let tagged = hits(&(0x2003u64 ^ 5 ^ start >> 12).to_ne_bytes(), Pointers { clear: 7, ..pointers });
        assert_eq!(tagged, [(0, 1, false)]);
    }

    #[test]
    fn what_lies_behind_a_header_is_pointed_at_as_a_beginning() {
        let index = Index::new(&[0x1000, 0x2000], &[64, 8]).unwrap();
        let words = [0x1000u64, 0x1010, 0x1011, 0x1018, 0x1028, 0x2010, 0x2007];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let hits = |pointers| {
            let mut hits = Vec::new();
            for_each_hit(&bytes, 0x9000, pointers, &index, &mut 0, |place, hit| {
                push(&mut hits, ((place - 0x9000) / 8, hit.row, hit.interior))
            })
            .unwrap();
            hits
        };
        let of_two = [(0, 0, false), (1, 0, false), (2, 0, true), (3, 0, true), (4, 0, false), (6, 1, true)];
        let pointers = Pointers { headers: [16, 40, 0, 0, 0, 0, 0, 0], ..NATIVE };
        assert_eq!(hits(pointers), of_two);
        assert_eq!(hits(Pointers { clear: 1, ..pointers })[2], (2, 0, false));
        let part = hits(Pointers { part: 4, ..NATIVE });
        assert_eq!(part.iter().filter(|hit| !hit.2).map(|hit| hit.0).collect::<Vec<_>>(), [0, 1]);
        let mangled: Vec<u8> = (0x1010u64 ^ 0x7000_9000 >> 12).to_ne_bytes().to_vec();
        let mut found = Vec::new();
        let pointers = Pointers { mangled: true, ..pointers };
        for_each_hit(&mangled, 0x7000_9000, pointers, &index, &mut 0, |_, hit| push(&mut found, hit)).unwrap();
        assert_eq!(found, [Hit { row: 0, interior: false }]);
    }

    #[test]
    fn memory_of_an_index_depends_on_no_address_and_no_size() {
        let entries = |table: &Table| match &table.rows {
            Rows::Groups(groups) => 2 * groups.len(),
            Rows::Pages(rows) => rows.len(),
        };
        let rows = |index: &Index| index.tables.iter().map(entries).sum::<usize>();
        let address: Vec<u64> = (1..100).map(|row| row << 50).collect();
        for size in [1, 1 << 24, 1 << 38, 1 << 45, 1 << 50] {
            let sizes = vec![size; address.len()];
            let index = Index::new(&address, &sizes).unwrap();
            assert!(rows(&index) <= 3 * address.len(), "{size:#x}");
            for (row, start) in address.iter().enumerate() {
                for at in [0, size / 2, size - 1] {
                    assert_eq!(index.find(start + at, &mut 0), Some(Hit { row, interior: at != 0 }), "{size:#x}");
                }
            }
        }
        let address: Vec<u64> = (1..1000).map(|row| row << 24).collect();
        let sizes = vec![16; address.len()];
        assert!(rows(&Index::new(&address, &sizes).unwrap()) <= 3 * address.len());
    }

    #[test]
    fn all_of_the_address_space() {
        let index = Index::new(&[0, 16, u64::MAX - 7], &[16, u64::MAX - 23, 8]).unwrap();
        let find = |at| index.find(at, &mut 0).map(|hit| hit.row);
        assert_eq!(
            [0, 15, 16, 1 << 63, u64::MAX - 8, u64::MAX - 7, u64::MAX].map(find),
            [0, 0, 1, 1, 1, 2, 2].map(Some)
        );
    }
}
