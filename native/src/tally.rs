//! What all bins of a table come to, in one pass that keeps no node: sums, and the longest chain.
//!
//! Only for chains that all end soundly. At the first that does not, or beyond a bound, there is no answer, and
//! [`crate::chains`] tells what is wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::chains::Rules;
use crate::fallible::{filled, push, with_room, Error, Result};
use crate::memory::{prefetch, Spans, Words};
use crate::parallel::run_parts;
use crate::sized;

const AT_ONCE: usize = sized(1 << 16, 5); // chains of a part at most
const AT_LEAST: usize = sized(1 << 11, 1); // a part: threads pay for many chains only
const PARTS: usize = sized(32, 3); // where there are fewer chains
const MOST_NODES: u64 = 1 << 31;
const LANES: usize = sized(64, 3); // chains side by side: nodes that lie anywhere in memory take long to come
const LONG: u64 = sized(16, 2) as u64; // nodes after which a chain is fetched ahead by itself, and may be a cycle
const AHEAD: u64 = 8; // nodes
const PATIENCE: u32 = sized(1 << 8, 4) as u32; // rounds between two looks at the clock
const SPREADING: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 over the golden ratio, as in `gdbext.kernels.tally`
const UNSAMPLED: u32 = 58; // of 64 nodes one is kept: that whose product begins with so few zeros

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
}

/// What the parts of one call share.
struct Shared {
    nodes: AtomicU64,
    total: u64,
    broken: AtomicBool,
}

impl Shared {
    fn sound(&self) -> bool {
        !self.broken.load(Ordering::Relaxed) && self.nodes.load(Ordering::Relaxed) <= self.total
    }
}

/// A walk that can be left and taken up again.
pub struct Job<'a> {
    parts: Vec<Sums<'a>>,
    done: Vec<bool>,
    shared: Shared,
}

impl<'a> Job<'a> {
    /// Prepares the walk.
    pub fn new(memory: &'a Spans<'a>, heads: Heads<'a>, rules: &'a Rules<'a>) -> Result<Self> {
        let chains = heads.firsts.count;
        let at_once = ((chains + PARTS - 1) / PARTS).clamp(AT_LEAST, AT_ONCE);
        let total = heads.total.min(MOST_NODES);
        let shared = Shared { nodes: AtomicU64::new(0), total, broken: AtomicBool::new(false) };
        let mut parts = Vec::new();
        for start in (0..chains).step_by(at_once) {
            let part = Sums {
                memory,
                heads,
                rules,
                row: start,
                until: chains.min(start + at_once),
                lanes: with_room(LANES)?,
                plain: rules.plain(),
                hint: 0,
                figures: Figures::default(),
                sample: Vec::new(),
                short: false,
            };
            push(&mut parts, part)?;
        }
        Ok(Job { done: filled(parts.len(), false)?, parts, shared })
    }

    /// Walks until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        let shared = &self.shared;
        run_parts(&mut self.parts, &mut self.done, deadline, |part, deadline| part.run(shared, deadline))
    }

    /// What was found, or none where a chain does not end soundly or there are too many nodes.
    pub fn figures(&self) -> Option<Figures> {
        if !self.shared.sound() {
            return None;
        }
        let mut sum = Figures::default();
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

/// Neighbouring chains, some of them followed side by side: what comes next in one is fetched while others go on.
struct Sums<'a> {
    memory: &'a Spans<'a>,
    heads: Heads<'a>,
    rules: &'a Rules<'a>,
    /// The next chain to begin.
    row: usize,
    until: usize,
    lanes: Vec<Lane>,
    plain: bool,
    hint: usize,
    figures: Figures,
    sample: Vec<u64>,
    /// Whether there was no memory for the sample.
    short: bool,
}

/// A chain on its way, with what Brent's algorithm needs to find cycles.
#[derive(Clone, Copy)]
struct Lane {
    row: usize,
    node: u64,
    length: u64,
    hare: u64,
}

#[derive(Clone, Copy)]
enum Next {
    Node,
    End(usize),
    Leaf,
    Broken,
}

impl Sums<'_> {
    /// Walks until the deadline; returns whether there is no more to do.
    fn run(&mut self, shared: &Shared, deadline: Instant) -> Result<bool> {
        loop {
            let before = self.figures.nodes;
            let sound = self.walk();
            if self.short {
                return Err(Error::OutOfMemory);
            }
            shared.nodes.fetch_add(self.figures.nodes - before, Ordering::Relaxed);
            if !sound {
                shared.broken.store(true, Ordering::Relaxed);
            }
            if !shared.sound() || self.lanes.is_empty() && self.row == self.until {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    /// Goes on for a while; returns whether all that it met is sound.
    fn walk(&mut self) -> bool {
        for _ in 0..PATIENCE {
            while self.lanes.len() < LANES && self.row < self.until {
                self.skip_empty();
                if !self.begin() {
                    return false;
                }
            }
            let mut kept = 0;
            for at in 0..self.lanes.len() {
                let mut lane = self.lanes[at];
                match self.step(&mut lane) {
                    Next::Node => {
                        self.lanes[kept] = lane;
                        kept += 1;
                    }
                    Next::Broken => return false,
                    end => self.close(lane, end),
                }
            }
            self.lanes.truncate(kept);
        }
        true
    }

    /// Counts chains without a node: a table has more of them than of others.
    #[inline(always)]
    fn skip_empty(&mut self) {
        if self.plain {
            let (firsts, rows) = (self.heads.firsts, self.row..self.until);
            let empty = rows.take_while(|&row| firsts.get(row) == 0).count();
            self.figures.ends[0] += empty as u64;
            self.row += empty;
        }
    }

    /// Begins the next chain, if there is one; returns whether it is sound as far as that shows.
    #[inline(always)]
    fn begin(&mut self) -> bool {
        let row = self.row;
        if row == self.until {
            return true;
        }
        let node = self.rules.decode_head(self.heads.firsts.get(row));
        self.row += 1;
        let lane = Lane { row, node, length: 0, hare: node };
        match self.judge(node, row) {
            Next::Node => self.short |= push(&mut self.lanes, lane).is_err(),
            Next::Broken => return false,
            end => self.close(lane, end),
        }
        true
    }

    /// Goes one node on.
    #[inline(always)]
    fn step(&mut self, lane: &mut Lane) -> Next {
        let rules = self.rules;
        let link = match self.memory.word(lane.node.wrapping_add(rules.next), rules.words, &mut self.hint) {
            Some(link) => link,
            None => return Next::Broken,
        };
        self.count(lane.node);
        lane.length += 1;
        let before = lane.node;
        lane.node = if self.plain { link } else { rules.decode(link, before) };
        if lane.length > LONG && self.goes_round(lane, before) {
            return Next::Broken;
        }
        self.judge(lane.node, lane.row)
    }

    /// Whether a long chain is a cycle, by Brent's algorithm; if its nodes lie at one distance, one of the next is fetched.
    fn goes_round(&mut self, lane: &mut Lane, before: u64) -> bool {
        if lane.node == lane.hare {
            return true;
        }
        if lane.length.is_power_of_two() {
            lane.hare = lane.node;
        }
        let distance = lane.node.wrapping_sub(before);
        let later = lane.node.wrapping_add(distance.wrapping_mul(AHEAD));
        prefetch(self.memory.from(later.wrapping_add(self.rules.next), &mut self.hint));
        false
    }

    /// What a link leads to, in the order of `chains`; a node is fetched.
    #[inline(always)]
    fn judge(&mut self, node: u64, row: usize) -> Next {
        let rules = self.rules;
        let stop = self.heads.stops.map(|(first, step)| first.wrapping_add(step.wrapping_mul(row as u64)));
        if node == 0 {
            return Next::End(0);
        } else if rules.forbidden.contains(&node) {
            return Next::Broken;
        } else if node & rules.end_bits != 0 {
            return Next::End(2);
        } else if Some(node) == stop {
            return Next::End(1);
        } else if rules.sentinels.contains(&node) {
            return Next::End(2);
        } else if node & rules.leaf_bits != 0 {
            return if self.memory.holds(node) { Next::Leaf } else { Next::Broken };
        } else if node & (rules.alignment - 1) != 0 {
            return Next::Broken;
        }
        prefetch(self.memory.from(node.wrapping_add(rules.next), &mut self.hint));
        Next::Node
    }

    #[inline(always)]
    fn count(&mut self, node: u64) {
        self.figures.nodes += 1;
        if node.wrapping_mul(SPREADING) >> UNSAMPLED == 0 {
            self.short |= push(&mut self.sample, node).is_err();
        }
    }

    #[inline(always)]
    fn close(&mut self, lane: Lane, next: Next) {
        let (mut length, mut end) = (lane.length, 0);
        match next {
            Next::End(other) => end = other,
            _ => {
                self.count(lane.node & !self.rules.mask);
                length += 1;
            }
        }
        let (figures, at) = (&mut self.figures, lane.row as u64);
        figures.ends[end] += 1;
        figures.nonempty += u64::from(length > 0);
        if length > figures.longest || length == figures.longest && at < figures.at {
            (figures.longest, figures.at) = (length, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chains::tests::rules;
    use crate::memory::Span;
    use std::time::Duration;

    /// Memory at 0x1000 with one word in each place.
    fn tallied(words: &[u64], firsts: &[u64], rules: &Rules, total: u64) -> Option<Figures> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let heads: Vec<u8> = firsts.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let spans = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let firsts = Column::new(&heads, firsts.len(), 8, rules.words).unwrap();
        let mut job = Job::new(&spans, Heads { firsts, stops: None, total }, rules).unwrap();
        while !job.run(Instant::now() + Duration::from_nanos(1)).unwrap() {}
        job.figures()
    }

    #[test]
    fn sums_of_sound_chains() {
        let words = [0x1010, 5, 0x1020, 6, 0, 5];
        let found = tallied(&words, &[0, 0x1000, 0, 0x1020, 0x1000], &rules(), 100).unwrap();
        assert_eq!((found.nodes, found.nonempty, found.longest, found.at), (7, 3, 3, 1));
        assert_eq!(found.ends, [5, 0, 0]);
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
    fn chains_that_are_long() {
        let links = |last| [0x1010, 0, 0x1020, 0, 0x1030, 0, 0x1040, 0, 0x1050, 0, last, 0];
        let (all, heads) = (rules(), [0, 0x1000, 0x1000]);
        let found = tallied(&links(0), &heads, &all, 100).unwrap();
        assert_eq!((found.nodes, found.longest, found.at, found.ends), (12, 6, 1, [3, 0, 0]));
        assert!((0..6).all(|back| tallied(&links(0x1000 + 16 * back), &heads, &all, 1 << 20).is_none()));
    }

    #[test]
    fn sentinels_and_misaligned_nodes() {
        let ends = Rules { sentinels: &[0x9000], ..rules() };
        let found = tallied(&[0x9000, 1], &[0x1000, 0x9000], &ends, 100).unwrap();
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
