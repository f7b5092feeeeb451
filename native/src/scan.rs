//! Words that point into blocks: an index of blocks by address, and memory scanned against it.

use std::time::Instant;

use crate::memory::{Span, Words};
use crate::parallel::{run_parts, Part};
use crate::sized;

const PAGE_SHIFT: u32 = 12; // of the smallest pages
const FAR: u64 = 1 << 24; // bytes of a gap or a block that end a table

/// Blocks by address: for each page, the first block that ends in it or behind.
///
/// Pages are as large as it takes for at most two a block: addresses and sizes may be anything, and memory must not
/// depend on them.
pub struct Index<'a> {
    address: &'a [u64],
    size: &'a [u64],
    tables: Vec<Table>,
}

struct Table {
    low: u64,
    high: u64, // of its last byte
    shift: u32,
    rows: Vec<u32>,
    until: usize,
}

/// A block that a word points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub row: usize,
    pub interior: bool,
}

impl<'a> Index<'a> {
    /// Takes blocks that are sorted and disjoint; a block of no bytes is taken for one. None when they are not.
    pub fn new(address: &'a [u64], size: &'a [u64]) -> Option<Self> {
        if address.len() != size.len() || address.len() >= u32::MAX as usize {
            return None;
        }
        let mut index = Index { address, size, tables: Vec::new() };
        let mut from = 0;
        while from < address.len() {
            let until = index.table_end(from)?;
            index.tables.push(index.table(from, until));
            from = until;
        }
        Some(index)
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.address.is_empty()
    }

    /// The address and the bytes of a block.
    pub fn block(&self, row: usize) -> (u64, u64) {
        (self.address[row], self.size[row])
    }

    fn last(&self, row: usize) -> Option<u64> {
        self.address[row].checked_add(self.size[row].max(1) - 1)
    }

    fn table_end(&self, from: usize) -> Option<usize> {
        let mut last = self.last(from)?;
        let mut row = from + 1;
        while row < self.address.len() {
            if self.address[row] <= last {
                return None;
            }
            let next = self.last(row)?;
            if next - last > FAR || last - self.address[row - 1] > FAR {
                break;
            }
            last = next;
            row += 1;
        }
        Some(row)
    }

    fn table(&self, from: usize, until: usize) -> Table {
        let low = self.address[from];
        let high = self.last(until - 1).unwrap_or(u64::MAX);
        let mut shift = PAGE_SHIFT;
        while (high - low) >> shift > 2 * (until - from) as u64 {
            shift += 1;
        }
        let pages = ((high - low) >> shift) as usize + 1;
        let mut rows = Vec::with_capacity(pages);
        let mut row = from;
        for page in 0..pages as u64 {
            while row < until && self.last(row).map_or(false, |last| last < low + (page << shift)) {
                row += 1;
            }
            rows.push(row as u32);
        }
        Table { low, high, shift, rows, until }
    }

    /// Returns the block that an address lies in, or None. `hint` is the number of a table that is likely.
    #[inline]
    pub fn find(&self, address: u64, hint: &mut usize) -> Option<Hit> {
        let table = match self.tables.get(*hint) {
            Some(table) if address >= table.low && address <= table.high => table,
            _ => {
                let at = self.tables.partition_point(|table| table.low <= address).checked_sub(1)?;
                if address > self.tables[at].high {
                    return None;
                }
                *hint = at;
                &self.tables[at]
            }
        };
        let page = ((address - table.low) >> table.shift) as usize;
        let from = *table.rows.get(page)? as usize;
        let until = table.rows.get(page + 1).map_or(table.until, |&row| (row as usize + 1).min(table.until));
        let row = (from + self.address[from..until].partition_point(|&start| start <= address)).checked_sub(1)?;
        let start = self.address[row];
        if row < from || address - start >= self.size[row].max(1) {
            return None;
        }
        Some(Hit { row, interior: address != start })
    }

    /// The least and the greatest address that can be in a block; the first is the greater when there is none.
    pub fn bounds(&self) -> (u64, u64) {
        match (self.tables.first(), self.tables.last()) {
            (Some(first), Some(last)) => (first.low, last.high),
            _ => (u64::MAX, 0),
        }
    }
}

/// Calls `found` with the place of every aligned word of `bytes` that points into a block, and what it points at.
#[inline]
pub fn for_each_hit(
    bytes: &[u8],
    start: u64,
    pointers: Pointers,
    index: &Index,
    hint: &mut usize,
    mut found: impl FnMut(u64, Hit),
) {
    let (low, high) = index.bounds();
    let words = pointers.words;
    let skipped = (start.wrapping_neg() & (words.size as u64 - 1)) as usize;
    let aligned = match bytes.get(skipped..) {
        Some(aligned) => aligned,
        None => return,
    };
    for (at, word) in aligned.chunks_exact(words.size).enumerate() {
        let value = words.decode(word) & !pointers.clear;
        if value >= low && value <= high {
            if let Some(hit) = index.find(value, hint) {
                found(start.wrapping_add((skipped + at * words.size) as u64), hit);
            }
        }
    }
}

/// How pointers are stored.
#[derive(Clone, Copy, Debug)]
pub struct Pointers {
    pub words: Words,
    /// Bits that are no part of the address: tags.
    pub clear: u64,
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
    ) -> Self {
        let mut parts = Vec::new();
        for span in spans {
            // Pieces begin at aligned addresses, so that no word lies across two.
            let skipped = (span.start.wrapping_neg() & (pointers.words.size as u64 - 1)) as usize;
            let bytes = span.bytes.get(skipped..).unwrap_or(&[]);
            for (at, piece) in bytes.chunks(PIECE).enumerate() {
                let start = span.start.wrapping_add((skipped + at * PIECE) as u64);
                parts.push(Piece { bytes: piece, start, index, wanted, pointers, most, hits: Vec::new(), full: false });
            }
        }
        Job { done: vec![false; parts.len()], parts }
    }

    /// Scans until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> bool {
        run_parts(&mut self.parts, &mut self.done, deadline)
    }

    /// How many words were found.
    pub fn hits(&self) -> usize {
        self.parts.iter().map(|part| part.hits.len()).sum()
    }

    /// Whether some mebibyte had more than could be kept.
    pub fn full(&self) -> bool {
        self.parts.iter().any(|part| part.full)
    }

    /// Writes the places of the words found, the rows of the blocks, and whether they point inside.
    pub fn write(&self, places: &mut [u64], rows: &mut [u32], interior: &mut [u8]) {
        let hits = self.parts.iter().flat_map(|part| &part.hits);
        for (at, &(place, hit)) in hits.enumerate() {
            places[at] = place;
            rows[at] = hit.row as u32;
            interior[at] = u8::from(hit.interior);
        }
    }
}

struct Piece<'a> {
    bytes: &'a [u8],
    start: u64,
    index: &'a Index<'a>,
    wanted: Option<&'a [u8]>,
    pointers: Pointers,
    most: usize,
    hits: Vec<(u64, Hit)>,
    full: bool,
}

impl Part for Piece<'_> {
    fn run(&mut self, _: Instant) -> bool {
        let (wanted, most) = (self.wanted, self.most);
        let (hits, full) = (&mut self.hits, &mut self.full);
        for_each_hit(self.bytes, self.start, self.pointers, self.index, &mut 0, |place, hit| {
            if wanted.map_or(true, |wanted| wanted[hit.row] != 0) {
                if hits.len() < most {
                    hits.push((place, hit));
                } else {
                    *full = true;
                }
            }
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NATIVE: Pointers = Pointers { words: Words { size: 8, swapped: false }, clear: 0 };

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
        assert!(Index::new(&[8, 16], &[9, 1]).is_none());
        assert!(Index::new(&[16, 8], &[1, 1]).is_none());
        assert!(Index::new(&[u64::MAX], &[2]).is_none());
        assert!(Index::new(&[8], &[]).is_none());
        assert!(Index::new(&[], &[]).unwrap().find(5, &mut 0).is_none());
    }

    #[test]
    fn words_that_point_into_blocks() {
        let index = Index::new(&[0x1000, 0x2000], &[16, 16]).unwrap();
        let words = [0x1000u64, 7, 0x2008, 0x1010, 0x2000];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let spans = [Span { start: 0x9004, bytes: &[&[0; 4], &bytes[..]].concat() }];
        let later = Instant::now() + Duration::from_secs(60);
        let mut job = Job::new(&spans, &index, None, NATIVE, 100);
        assert!(job.run(later));
        let (mut places, mut rows, mut interior) = ([0; 3], [0; 3], [0; 3]);
        assert_eq!((job.hits(), job.full()), (3, false));
        job.write(&mut places, &mut rows, &mut interior);
        assert_eq!((places, rows, interior), ([0x9008, 0x9018, 0x9028], [0, 1, 1], [0, 1, 0]));
        let mut some = Job::new(&spans, &index, Some(&[0, 1]), NATIVE, 1);
        assert!(some.run(later));
        assert_eq!((some.hits(), some.full()), (1, true));
    }

    #[test]
    fn memory_of_an_index_depends_on_no_address_and_no_size() {
        let rows = |index: &Index| index.tables.iter().map(|table| table.rows.len()).sum::<usize>();
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
