//! A graph of rows and edges between them, compressed, as it comes from elsewhere.

use crate::fallible::{collected, filled, Result};
use crate::memory::prefetch_item;

/// The most rows and nodes of a graph: one bit of their numbers is free for other use.
pub const MOST: usize = i32::MAX as usize - 1;
/// No row, no node.
pub const NONE: u32 = u32::MAX;

/// How many steps may lie between two looks at the clock.
pub const PATIENCE: usize = crate::sized(1 << 14, 3);

/// The targets of row i are `to[first[i]..first[i + 1]]`; the edges that `interior` marks point into their middles.
#[derive(Clone, Copy)]
pub struct Graph<'a> {
    first: &'a [u64],
    to: &'a [u32],
    interior: &'a [u8],
}

impl<'a> Graph<'a> {
    /// Takes a graph; None where an edge leads out of it, or a row ends before it begins.
    pub fn new(first: &'a [u64], to: &'a [u32], interior: &'a [u8]) -> Option<Self> {
        let rows = first.len().checked_sub(1)?;
        let whole = first[0] == 0 && first[rows] == to.len() as u64 && interior.len() == to.len();
        let sound = whole && rows <= MOST && first.windows(2).all(|pair| pair[0] <= pair[1]);
        // Every number is looked at, so that the loop needs no way out.
        let most = to.iter().fold(None, |most, &row| most.max(Some(row)));
        let inside = most.map_or(true, |most| (most as usize) < rows);
        if sound && inside {
            Some(Graph { first, to, interior })
        } else {
            None
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.first.len() - 1
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        self.to.len()
    }

    /// The targets of a row.
    #[inline(always)]
    pub fn targets(&self, row: usize) -> &'a [u32] {
        &self.to[self.first[row] as usize..self.first[row + 1] as usize]
    }

    /// The marks of a row's edges.
    #[inline(always)]
    pub fn interior(&self, row: usize) -> &'a [u8] {
        &self.interior[self.first[row] as usize..self.first[row + 1] as usize]
    }

    /// Asks the processor to fetch where a row begins.
    #[inline(always)]
    pub fn prefetch_row(&self, row: usize) {
        prefetch_item(self.first, row);
    }

    /// Asks the processor to fetch a row's targets.
    #[inline(always)]
    pub fn prefetch_targets(&self, row: usize) {
        prefetch_item(self.to, self.first[row] as usize);
    }
}

/// A graph of its own, in half the room: less than 2^32 edges, of which it is not kept where they point.
#[derive(Default)]
pub struct Compact {
    first: Vec<u32>,
    to: Vec<u32>,
}

impl Compact {
    /// Copies a graph that has no more edges than that.
    pub fn new(graph: Graph) -> Result<Self> {
        let first = collected(graph.first.iter().map(|&first| first as u32))?;
        let to = collected(graph.to.iter().copied())?;
        Ok(Compact { first, to })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.first.len().saturating_sub(1)
    }

    /// The targets of a row.
    #[inline(always)]
    pub fn targets(&self, row: usize) -> &[u32] {
        &self.to[self.first[row] as usize..self.first[row + 1] as usize]
    }

    /// Asks the processor to fetch where a row begins.
    #[inline(always)]
    pub fn prefetch_row(&self, row: usize) {
        prefetch_item(&self.first, row);
    }

    /// Asks the processor to fetch a row's targets.
    #[inline(always)]
    pub fn prefetch_targets(&self, row: usize) {
        prefetch_item(&self.to, self.first[row] as usize);
    }
}

/// One bit for each row.
#[derive(Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    pub fn new(rows: usize) -> Result<Self> {
        Ok(Bits(filled((rows + 63) / 64, 0)?))
    }

    #[inline(always)]
    pub fn has(&self, row: usize) -> bool {
        self.0[row / 64] >> (row % 64) & 1 != 0
    }

    /// Sets a bit; returns whether it was not set.
    #[inline(always)]
    pub fn add(&mut self, row: usize) -> bool {
        let (word, bit) = (&mut self.0[row / 64], 1 << (row % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    #[inline(always)]
    pub fn remove(&mut self, row: usize) {
        self.0[row / 64] &= !(1 << (row % 64));
    }
}

/// Graphs for tests: rows of targets, a target with [`INTO`] being pointed into.
#[cfg(test)]
pub mod samples {
    use super::*;

    pub const INTO: u32 = 1 << 31;

    pub struct Sample {
        first: Vec<u64>,
        to: Vec<u32>,
        interior: Vec<u8>,
    }

    impl Sample {
        pub fn new(rows: &[&[u32]]) -> Self {
            let ends = rows.iter().scan(0, |sum, row| {
                *sum += row.len() as u64;
                Some(*sum)
            });
            let all = || rows.iter().flat_map(|row| row.iter());
            Sample {
                first: std::iter::once(0).chain(ends).collect(),
                to: all().map(|to| to & !INTO).collect(),
                interior: all().map(|to| (to >> 31) as u8).collect(),
            }
        }

        pub fn graph(&self) -> Graph<'_> {
            Graph::new(&self.first, &self.to, &self.interior).unwrap()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_of_a_graph_is_refused() {
        assert_eq!(Graph::new(&[0, 1, 2], &[1, 0], &[0, 1]).unwrap().rows(), 2);
        assert_eq!(Graph::new(&[0], &[], &[]).unwrap().rows(), 0);
        assert!(Graph::new(&[], &[], &[]).is_none());
        for first in [[0, 2, 1], [1, 1, 2], [0, 1, 3], [0, u64::MAX, 2]] {
            assert!(Graph::new(&first, &[1, 0], &[0, 1]).is_none());
        }
        assert!(Graph::new(&[0, 1, 2], &[2, 0], &[0, 0]).is_none());
        assert!(Graph::new(&[0, 1, 2], &[1, NONE], &[0, 0]).is_none());
        assert!(Graph::new(&[0, 1, 2], &[1, 0], &[0]).is_none());
    }
}
