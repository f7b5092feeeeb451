//! What all bins of a table come to, in one pass that keeps no node: sums, the longest chain, distinct stored hashes.
//!
//! Only for chains that all end soundly. At the first that does not, or beyond a bound, there is no answer, and
//! [`crate::chains`] tells what is wrong. Several chains are followed side by side, so that the nodes of all are fetched
//! at the same time: most of them lie anywhere in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use crate::chains::Rules;
use crate::distinct::{buckets_for, Counting, Pieces};
use crate::lanes::Lanes;
use crate::memory::{Spans, Words};
use crate::parallel::run_parts;
use crate::sized;

const AT_ONCE: usize = sized(1 << 16, 5); // chains of a part at most
const AT_LEAST: usize = sized(1 << 11, 1); // a part: threads pay for many chains only
const PARTS: usize = sized(32, 3); // where there are fewer chains
const MOST_NODES: u64 = 1 << 31; // so that a length is a number of 32 bits

/// The first links of all chains: numbers at a fixed distance from each other.
#[derive(Clone, Copy)]
pub struct Column<'a> {
    bytes: &'a [u8],
    stride: usize,
    count: usize,
    words: Words,
}

impl<'a> Column<'a> {
    /// Takes `count` words, the first at the beginning of `bytes`. None where the bytes do not hold them.
    pub fn new(bytes: &'a [u8], count: usize, stride: usize, words: Words) -> Option<Self> {
        let needed = if count == 0 { 0 } else { (count - 1).checked_mul(stride)?.checked_add(words.size)? };
        if bytes.len() < needed {
            return None;
        }
        Some(Column { bytes, stride, count, words })
    }

    #[inline(always)]
    pub(crate) fn get(&self, row: usize) -> u64 {
        self.words.decode(&self.bytes[row * self.stride..])
    }
}

/// The chains of one call.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub firsts: Column<'a>,
    /// The node that ends the first chain, and how much further on that of each next one is; or none.
    pub stops: Option<(u64, u64)>,
    /// Nodes of all chains beyond which there is no answer.
    pub total: u64,
}

/// Where nodes store a hash.
#[derive(Clone, Copy)]
pub struct Hash {
    pub offset: u64,
    pub size: usize,
    pub swapped: bool,
}

impl Hash {
    #[inline(always)]
    pub(crate) fn read(self, memory: &Spans, place: u64, hint: &mut usize) -> Option<u64> {
        let held = memory.from(place, hint);
        if held.len() >= self.size {
            return Some(self.decode(held));
        }
        let mut bytes = [0; 8];
        for (at, byte) in bytes.iter_mut().enumerate().take(self.size) {
            *byte = *memory.from(place.checked_add(at as u64)?, hint).first()?;
        }
        Some(self.decode(&bytes))
    }

    #[inline(always)]
    pub(crate) fn decode(self, bytes: &[u8]) -> u64 {
        if self.size >= 4 {
            return Words { size: self.size, swapped: self.swapped }.decode(bytes);
        }
        let big = self.swapped != cfg!(target_endian = "big");
        match (self.size, big) {
            (1, _) => bytes[0].into(),
            (_, false) => u16::from_le_bytes([bytes[0], bytes[1]]).into(),
            (_, true) => u16::from_be_bytes([bytes[0], bytes[1]]).into(),
        }
    }
}

/// What chains come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub nodes: u64,
    pub nonempty: u64,
    pub longest: u64,
    /// The first chain that is so long.
    pub at: u64,
    /// Chains that end in null, at their heads, at a sentinel.
    pub ends: [u64; 3],
    pub distinct: u64,
}

/// What is walked.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub memory: &'a Spans<'a>,
    pub heads: Heads<'a>,
    pub rules: &'a Rules<'a>,
    pub hash: Option<Hash>,
}

/// What the parts of one call share.
pub(crate) struct Shared {
    pub nodes: AtomicU64,
    pub total: u64,
    pub broken: AtomicBool,
}

/// A walk that can be left and taken up again.
pub struct Job<'a> {
    parts: Vec<Lanes<'a>>,
    done: Vec<bool>,
    shared: Arc<Shared>,
    hashed: bool,
    counting: Option<Counting>,
    distinct: u64,
}

impl<'a> Job<'a> {
    /// Prepares the walk. `lengths` is empty, or has a place for each chain.
    pub fn new(
        memory: &'a Spans<'a>,
        heads: Heads<'a>,
        rules: &'a Rules<'a>,
        hash: Option<Hash>,
        lengths: &'a mut [u32],
    ) -> Option<Self> {
        let chains = heads.firsts.count;
        if !lengths.is_empty() && lengths.len() != chains {
            return None;
        }
        let at_once = ((chains + PARTS - 1) / PARTS).clamp(AT_LEAST, AT_ONCE);
        let shared = Arc::new(Shared {
            nodes: AtomicU64::new(0),
            total: heads.total.min(MOST_NODES),
            broken: AtomicBool::new(false),
        });
        let given = Given { memory, heads, rules, hash };
        let (mut columns, buckets) = (lengths.chunks_mut(at_once), buckets_for(chains));
        let parts: Vec<_> = (0..chains)
            .step_by(at_once)
            .map(|start| {
                let rows = (start, chains.min(start + at_once));
                let column = columns.next().unwrap_or_default();
                Lanes::new(given, rows, column, Pieces::new(buckets), Arc::clone(&shared))
            })
            .collect();
        let done = vec![false; parts.len()];
        Some(Job { parts, done, shared, hashed: hash.is_some(), counting: None, distinct: 0 })
    }

    /// Walks until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> bool {
        if !run_parts(&mut self.parts, &mut self.done, deadline) {
            return false;
        }
        if !self.hashed || !self.sound() {
            return true;
        }
        if self.counting.is_none() {
            self.counting = Some(Counting::new(self.parts.iter_mut().map(|part| part.pieces.take())));
        }
        match self.counting.as_mut().and_then(|counting| counting.run(deadline)) {
            Some(distinct) => self.distinct = distinct,
            None => return false,
        }
        true
    }

    /// Whether every chain ends soundly, within the bound.
    fn sound(&self) -> bool {
        !self.shared.broken.load(Ordering::Relaxed) && self.shared.nodes.load(Ordering::Relaxed) <= self.shared.total
    }

    /// What was found, or none.
    pub fn figures(&self) -> Option<Figures> {
        if !self.sound() {
            return None;
        }
        let mut sum = Figures { distinct: self.distinct, ..Figures::default() };
        for part in &self.parts {
            let one = part.figures;
            sum.nodes += one.nodes;
            sum.nonempty += one.nonempty;
            if one.longest > sum.longest {
                sum.longest = one.longest;
                sum.at = one.at;
            }
            for (to, from) in sum.ends.iter_mut().zip(one.ends) {
                *to += from;
            }
        }
        Some(sum)
    }

    /// How many nodes are in the sample.
    pub fn sampled(&self) -> usize {
        self.parts.iter().map(|part| part.sample.len()).sum()
    }

    /// Writes the sample; `nodes` has [`Job::sampled`] places.
    pub fn write_sample(&self, nodes: &mut [u64]) {
        let mut at = 0;
        for part in &self.parts {
            nodes[at..at + part.sample.len()].copy_from_slice(&part.sample);
            at += part.sample.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chains::tests::rules;
    use crate::memory::Span;
    use std::time::Duration;

    /// Memory at 0x1000 with one word in each place; the word behind a link is its hash.
    fn tallied(words: &[u64], firsts: &[u64], rules: &Rules, total: u64) -> Option<(Figures, Vec<u32>)> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let heads: Vec<u8> = firsts.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let spans = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let firsts = Column::new(&heads, firsts.len(), 8, rules.words).unwrap();
        let mut lengths = vec![0; firsts.count];
        let hash = Hash { offset: 8, size: 8, swapped: false };
        let found = {
            let heads = Heads { firsts, stops: None, total };
            let mut job = Job::new(&spans, heads, rules, Some(hash), &mut lengths)?;
            while !job.run(Instant::now() + Duration::from_nanos(1)) {}
            job.figures()
        };
        found.map(|figures| (figures, lengths))
    }

    #[test]
    fn sums_of_sound_chains() {
        let words = [0x1010, 5, 0x1020, 6, 0, 5];
        let (found, lengths) = tallied(&words, &[0, 0x1000, 0, 0x1020, 0x1000], &rules(), 100).unwrap();
        assert_eq!((found.nodes, found.nonempty, found.longest, found.at), (7, 3, 3, 1));
        assert_eq!((found.ends, found.distinct), ([5, 0, 0], 2));
        assert_eq!(lengths, [0, 3, 0, 1, 3]);
    }

    #[test]
    fn what_is_not_sound_has_no_sums() {
        let all = rules();
        assert!(tallied(&[0x1000, 0], &[0x1000], &all, 100).is_none()); // a cycle of one
        assert!(tallied(&[0x1010, 0, 0x1000, 0], &[0x1000], &all, 100).is_none());
        assert!(tallied(&[0x2000, 0], &[0x1000], &all, 100).is_none()); // outside
        assert!(tallied(&[0, 0], &[0x1000, 0x1000], &all, 1).is_none()); // more than the bound
        assert!(tallied(&[0, 0], &[0x1000, 0x1000], &all, 2).is_some());
        assert!(tallied(&[0, 0], &[0x1000], &Rules { forbidden: &[0x1000], ..all }, 100).is_none());
    }

    #[test]
    fn sentinels_and_misaligned_nodes() {
        let ends = Rules { sentinels: &[0x9000], ..rules() };
        let (found, _) = tallied(&[0x9000, 1], &[0x1000, 0x9000], &ends, 100).unwrap();
        assert_eq!((found.ends, found.nodes), ([0, 0, 2], 1));
        assert!(tallied(&[0, 0], &[0x1001], &Rules { alignment: 8, ..rules() }, 100).is_none());
    }

    #[test]
    fn a_column_that_is_too_short_is_refused() {
        let words = Words { size: 8, swapped: false };
        assert!(Column::new(&[0; 23], 2, 16, words).is_none());
        assert!(Column::new(&[0; 24], 2, 16, words).is_some());
        assert!(Column::new(&[0; 24], usize::MAX, 16, words).is_none());
        assert!(Column::new(&[], 0, 16, words).is_some());
    }
}
