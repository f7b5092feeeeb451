//! Words of small blocks put behind each other, so that they are looked up many at a time.

use crate::fallible::{append, push, Result};
use crate::memory::{prefetch_item, Spans};
use crate::scan::{for_each_hit, Hit, Index, Pointers};
use crate::sized;

/// Blocks that are gathered at a time.
pub const BLOCKS: usize = sized(32, 3);

const SMALL: u64 = sized(1 << 10, 24) as u64; // bytes of a block that is worth a copy
const LINE: usize = 64; // bytes that the processor fetches at once

/// Where to look first: what was found last is likely.
#[derive(Default)]
pub struct Hints {
    pub span: usize,
    pub table: usize,
}

/// The aligned words of some blocks.
#[derive(Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    /// Where mangled words count, since they depend on their addresses: where each block's words begin among the bytes,
    /// and in memory.
    begun: Vec<(usize, u64)>,
}

impl Gathered {
    /// Asks the processor to fetch a block; returns it, or None when it is large or not in one span, and so is not
    /// gathered.
    #[inline]
    pub fn fetch<'a>(memory: &Spans<'a>, start: u64, size: u64, hints: &mut Hints) -> Option<&'a [u8]> {
        if size > SMALL {
            return None;
        }
        let bytes = memory.from(start, &mut hints.span).get(..size as usize)?;
        for at in (0..bytes.len()).step_by(LINE) {
            prefetch_item(bytes, at);
        }
        Some(bytes)
    }

    /// Adds the words of a block that begins at `start`.
    #[inline(always)]
    pub fn add(&mut self, start: u64, block: &[u8], pointers: Pointers) -> Result<()> {
        let word = pointers.words.size;
        let skipped = (start.wrapping_neg() & (word as u64 - 1)) as usize;
        if let Some(aligned) = block.get(skipped..) {
            if pointers.mangled {
                push(&mut self.begun, (self.bytes.len(), start.wrapping_add(skipped as u64)))?;
            }
            append(&mut self.bytes, &aligned[..aligned.len() / word * word])?;
        }
        Ok(())
    }

    /// How many bytes were added.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Calls `found` with the place among the bytes added of every word that points into a block, and the block; then
    /// forgets the words.
    #[inline]
    pub fn for_each_hit(
        &mut self,
        pointers: Pointers,
        index: &Index,
        hints: &mut Hints,
        mut found: impl FnMut(u64, Hit) -> Result<()>,
    ) -> Result<()> {
        if pointers.mangled {
            self.for_each_mangled_hit(pointers, index, hints, &mut found)?;
        } else {
            for_each_hit(&self.bytes, 0, pointers, index, &mut hints.table, found)?;
        }
        self.bytes.clear();
        Ok(())
    }

    /// Looks at each block's words at their own addresses.
    fn for_each_mangled_hit(
        &mut self,
        pointers: Pointers,
        index: &Index,
        hints: &mut Hints,
        found: &mut impl FnMut(u64, Hit) -> Result<()>,
    ) -> Result<()> {
        let mut end = self.bytes.len();
        for (from, _) in self.begun.iter_mut().rev() {
            end = std::mem::replace(from, end); // where each ends
        }
        let mut from = 0;
        for (until, start) in self.begun.drain(..) {
            for_each_hit(&self.bytes[from..until], start, pointers, index, &mut hints.table, |place, hit| {
                found(place.wrapping_sub(start).wrapping_add(from as u64), hit)
            })?;
            from = until;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Span, Words};

    #[test]
    fn whole_aligned_words_of_small_blocks() {
        let words = Words { size: 4, swapped: cfg!(target_endian = "big") };
        let pointers = Pointers { words, clear: 0, mangled: false, headers: [0; 8], part: 0 };
        let content: Vec<u8> = (0..32).collect();
        let memory = Spans::new(vec![Span { start: 0x1000, bytes: &content }]).unwrap();
        let mut hints = Hints::default();
        let mut fetch = |start, size| Gathered::fetch(&memory, start, size, &mut hints);
        assert!(fetch(0x1000, SMALL + 1).is_none());
        assert!(fetch(0x1018, 9).is_none());
        assert!(fetch(0x1020, 1).is_none());
        let block = fetch(0x1002, 11).unwrap();
        let mut gathered = Gathered::default();
        for (start, block) in [(0x1002, block), (0x1003, &content[3..4]), (0x1003, &[])] {
            gathered.add(start, block, pointers).unwrap();
        }
        assert_eq!(gathered.bytes, [4, 5, 6, 7, 8, 9, 10, 11]);
        let index = Index::new(&[0x0706_0504, 0x0b0a_0900], &[1, 16]).unwrap();
        let mut hits = Vec::new();
        let found = |at, hit: Hit| push(&mut hits, (at, hit.row, hit.interior));
        gathered.for_each_hit(pointers, &index, &mut hints, found).unwrap();
        assert_eq!(hits, [(0, 0, false), (4, 1, true)]);
        assert!(gathered.is_empty());
    }
}
