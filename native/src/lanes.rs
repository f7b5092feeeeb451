//! Neighbouring chains of a table, followed side by side for [`crate::tally`]: first in waves, one node of each a round,
//! then those that are longer than the rest in lanes. What comes next is fetched while others are looked at.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use crate::chains::Rules;
use crate::distinct::Pieces;
use crate::memory::{prefetch, Spans};
use crate::near::{Near, NEARBY};
use crate::parallel::Part;
use crate::sized;
use crate::tally::{Figures, Given, Hash, Heads, Shared};

const WAVE: usize = sized(256, 4); // chains of a wave
const ROUNDS: u32 = sized(8, 2) as u32; // of a wave
const FEWEST: usize = sized(16, 2); // chains that are worth a round
const LANES: usize = sized(24, 3); // chains side by side
const PATIENCE: u32 = sized(1 << 10, 4) as u32; // rounds between two looks at the clock
const SPREADING: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 over the golden ratio, as in `gdbext.kernels.tally`
const UNSAMPLED: u32 = 58; // of 64 nodes one is kept: that whose product begins with so few zeros

/// One chain on its way: a node that is known to count unless its link cannot be read.
#[derive(Clone, Copy)]
struct Lane<'a> {
    node: u64,
    /// What lies in memory from the node's link on.
    bytes: &'a [u8],
    row: usize,
    length: u32,
    turn: u32,
    hare: u64,
}

enum Next<'a> {
    Node(&'a [u8]),
    End(usize),
    Leaf,
    Broken,
}

/// Neighbouring chains, several of them followed side by side.
pub(crate) struct Lanes<'a> {
    memory: &'a Spans<'a>,
    heads: Heads<'a>,
    rules: &'a Rules<'a>,
    hash: Option<Hash>,
    rows: (usize, usize),
    row: usize,
    lanes: Vec<Lane<'a>>,
    waiting: Vec<Lane<'a>>,
    lengths: &'a mut [u32],
    shared: Arc<Shared>,
    told: u64,
    pub figures: Figures,
    pub sample: Vec<u64>,
    pub pieces: Pieces,
    broken: bool,
    plain: bool,
    simple: bool,
    odd: u64,
    near: Near<'a>,
    hint: usize,
    hash_hint: usize,
}

impl Part for Lanes<'_> {
    fn run(&mut self, deadline: Instant) -> bool {
        loop {
            let done = self.walk();
            self.shared.nodes.fetch_add(self.figures.nodes - self.told, Ordering::Relaxed);
            self.told = self.figures.nodes;
            if self.broken || self.shared.nodes.load(Ordering::Relaxed) > self.shared.total {
                self.shared.broken.store(true, Ordering::Relaxed);
            }
            if self.shared.broken.load(Ordering::Relaxed) {
                return true;
            }
            if done {
                self.pieces.sort();
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }
}

impl<'a> Lanes<'a> {
    /// `lengths` is empty, or has a place for each of the rows.
    pub fn new(
        given: Given<'a>,
        rows: (usize, usize),
        lengths: &'a mut [u32],
        pieces: Pieces,
        shared: Arc<Shared>,
    ) -> Self {
        let Given { memory, heads, rules, hash } = given;
        Lanes {
            memory,
            heads,
            rules,
            hash,
            rows,
            row: rows.0,
            lanes: Vec::with_capacity(LANES),
            waiting: Vec::new(),
            lengths,
            shared,
            told: 0,
            figures: Figures::default(),
            sample: Vec::new(),
            pieces,
            broken: false,
            plain: rules.plain(),
            simple: rules.plain()
                && rules.end_bits | rules.leaf_bits == 0
                && rules.sentinels.is_empty()
                && rules.forbidden.is_empty()
                && heads.stops.is_none(),
            odd: rules.end_bits | rules.leaf_bits | (rules.alignment - 1),
            near: Near::default(),
            hint: 0,
            hash_hint: 0,
        }
    }

    /// Goes on for a while; returns whether all chains have come to their ends.
    fn walk(&mut self) -> bool {
        if self.simple {
            for _ in 0..PATIENCE / (WAVE as u32) {
                if self.row < self.rows.1 && !self.broken {
                    self.wave();
                }
            }
            if self.row < self.rows.1 || self.broken {
                return false;
            }
        }
        for _ in 0..PATIENCE {
            while self.lanes.len() < LANES {
                match self.begin() {
                    Some(lane) => self.lanes.push(lane),
                    None => break,
                }
            }
            let mut at = 0;
            while at < self.lanes.len() {
                let mut lane = self.lanes[at];
                if self.step(&mut lane) {
                    self.lanes[at] = lane;
                    at += 1;
                } else if let Some(other) = self.begin() {
                    self.lanes[at] = other;
                    at += 1;
                } else {
                    self.lanes.swap_remove(at);
                }
            }
            if self.broken {
                return false;
            }
            if self.lanes.is_empty() && self.row == self.rows.1 {
                return true;
            }
        }
        false
    }

    /// Follows the next chains side by side, one node of each a round, where only null ends a chain. Those that are longer
    /// than the rest wait for lanes.
    fn wave(&mut self) {
        let (mut nodes, mut rows) = ([0; WAVE + 1], [0; WAVE + 1]);
        let (next, words, hash) = (self.rules.next, self.rules.words, self.hash);
        let (first, mut count, mut near, mut odd) = (self.row, 0, self.near, 0);
        while count < WAVE && self.row < self.rows.1 {
            let node = self.heads.firsts.get(self.row);
            nodes[count] = node;
            rows[count] = self.row;
            count += usize::from(node != 0);
            odd |= node;
            near.fetch(node, next, hash);
            self.row += 1;
        }
        self.figures.ends[0] += (self.row - first) as u64;
        self.figures.nonempty += count as u64;
        let mut length = 1;
        while count >= FEWEST && length < ROUNDS || length == 1 && count > 0 {
            self.note_lengths(&rows[..count], length);
            let (before, going) = ((nodes, rows), count);
            count = 0;
            for (&node, &row) in before.0.iter().zip(&before.1).take(going) {
                let link = match near.word(node.wrapping_add(next), words, self.memory) {
                    Some(link) => link,
                    None => {
                        self.broken = true;
                        return;
                    }
                };
                nodes[count] = link;
                rows[count] = row;
                count += usize::from(link != 0);
                odd |= link;
                near.fetch(link, next, hash);
            }
            if odd & self.odd != 0 {
                self.broken = true;
                return;
            }
            self.take(&before.0[..going], &near);
            self.figures.nodes += going as u64;
            if u64::from(length) > self.figures.longest && count < going {
                self.figures.longest = length.into();
                let ended = (0..going).find(|&at| at >= count || before.1[at] != rows[at]).unwrap_or(0);
                self.figures.at = before.1[ended] as u64;
            }
            length += 1;
        }
        self.near = near;
        for (&node, &row) in nodes.iter().zip(&rows).take(count).rev() {
            match self.next(node, row) {
                Next::Node(bytes) => {
                    let length = length - 1;
                    self.figures.nonempty -= 1;
                    self.figures.ends[0] -= 1;
                    self.waiting.push(Lane { node, bytes, row, length, turn: 2 * length, hare: node });
                }
                _ => self.broken = true,
            }
        }
    }

    fn note_lengths(&mut self, rows: &[usize], length: u32) {
        if self.lengths.is_empty() {
            return;
        }
        for &row in rows {
            self.lengths[row - self.rows.0] = length;
        }
    }

    /// Begins the next chain that has a node; those without are counted.
    #[inline(always)]
    fn begin(&mut self) -> Option<Lane<'a>> {
        if let Some(lane) = self.waiting.pop() {
            return Some(lane);
        }
        while self.row < self.rows.1 {
            let (row, stored) = (self.row, self.heads.firsts.get(self.row));
            self.row += 1;
            let node = if self.plain { stored } else { self.rules.decode_head(stored) };
            if node == 0 {
                self.figures.ends[0] += 1;
                continue;
            }
            match self.next(node, row) {
                Next::Node(bytes) => return Some(Lane { node, bytes, row, length: 0, turn: 1, hare: node }),
                Next::End(end) => self.figures.ends[end] += 1,
                Next::Leaf => {
                    self.count(node & !self.rules.mask);
                    self.close(row, 1, 0);
                }
                Next::Broken => {
                    self.broken = true;
                    return None;
                }
            }
        }
        None
    }

    /// Goes one node on; returns whether there is another.
    #[inline(always)]
    fn step(&mut self, lane: &mut Lane<'a>) -> bool {
        let words = self.rules.words;
        let link = if lane.bytes.len() >= words.size {
            words.decode(lane.bytes)
        } else {
            let place = lane.node.wrapping_add(self.rules.next);
            match self.memory.word(place, words, &mut self.hint) {
                Some(link) => link,
                None => {
                    self.broken = true;
                    return false;
                }
            }
        };
        self.count(lane.node);
        lane.length += 1;
        let node = if self.plain { link } else { self.rules.decode(link, lane.node) };
        if node == lane.hare {
            self.broken = true;
            return false;
        }
        if lane.length == lane.turn {
            lane.hare = node;
            lane.turn = lane.turn.saturating_mul(2);
        }
        lane.node = node;
        match self.next(node, lane.row) {
            Next::Node(bytes) => {
                lane.bytes = bytes;
                return true;
            }
            Next::End(end) => self.close(lane.row, lane.length, end),
            Next::Leaf => {
                self.count(node & !self.rules.mask);
                self.close(lane.row, lane.length + 1, 0);
            }
            Next::Broken => self.broken = true,
        }
        false
    }

    /// Tells what comes, and has it fetched.
    #[inline(always)]
    fn next(&mut self, node: u64, row: usize) -> Next<'a> {
        if node == 0 {
            return Next::End(0);
        }
        let rules = self.rules;
        let stop = self.heads.stops.map(|(first, step)| first.wrapping_add(step.wrapping_mul(row as u64)));
        let usual = node & self.odd == 0 && Some(node) != stop;
        if !usual || rules.forbidden.contains(&node) || rules.sentinels.contains(&node) {
            if let Some(other) = self.judge(node, stop) {
                return other;
            }
        }
        let bytes = self.memory.from(node.wrapping_add(rules.next), &mut self.hint);
        if bytes.is_empty() {
            return Next::Broken;
        }
        prefetch(bytes);
        if let Some(hash) = self.hash {
            if hash.offset.wrapping_sub(rules.next).wrapping_add(NEARBY) > 2 * NEARBY {
                prefetch(self.memory.from(node.wrapping_add(hash.offset), &mut self.hash_hint));
            }
        }
        Next::Node(bytes)
    }

    /// Tells how a chain ends before `node`, in the order of `chains`, or none.
    fn judge(&mut self, node: u64, stop: Option<u64>) -> Option<Next<'a>> {
        let rules = self.rules;
        if rules.forbidden.contains(&node) {
            return Some(Next::Broken);
        }
        if node & rules.end_bits != 0 {
            return Some(Next::End(2));
        }
        if Some(node) == stop {
            return Some(Next::End(1));
        }
        if rules.sentinels.contains(&node) {
            return Some(Next::End(2));
        }
        if node & rules.leaf_bits != 0 {
            return Some(if self.memory.holds(node) { Next::Leaf } else { Next::Broken });
        }
        if node & (rules.alignment - 1) != 0 {
            return Some(Next::Broken);
        }
        None
    }

    /// Keeps the hashes of nodes, and one in many nodes.
    fn take(&mut self, nodes: &[u64], near: &Near) {
        for &node in nodes {
            if node.wrapping_mul(SPREADING) >> UNSAMPLED == 0 {
                self.sample.push(node);
            }
        }
        let hash = match self.hash {
            Some(hash) => hash,
            None => return,
        };
        let (mut values, mut count) = ([0; WAVE], 0);
        for &node in nodes {
            let place = node.wrapping_add(hash.offset);
            let held = near.from(place);
            let value = if held.len() >= hash.size {
                Some(hash.decode(held))
            } else {
                hash.read(self.memory, place, &mut self.hash_hint)
            };
            values[count] = value.unwrap_or(0);
            count += usize::from(value.is_some());
        }
        self.pieces.extend(&values[..count]);
    }

    #[inline(always)]
    fn count(&mut self, node: u64) {
        self.figures.nodes += 1;
        if node.wrapping_mul(SPREADING) >> UNSAMPLED == 0 {
            self.sample.push(node);
        }
        if let Some(hash) = self.hash {
            let place = node.wrapping_add(hash.offset);
            if let Some(value) = hash.read(self.memory, place, &mut self.hash_hint) {
                self.pieces.push(value);
            }
        }
    }

    #[inline(always)]
    fn close(&mut self, row: usize, length: u32, end: usize) {
        let figures = &mut self.figures;
        figures.ends[end] += 1;
        if length == 0 {
            return;
        }
        figures.nonempty += 1;
        let (long, row) = (u64::from(length), row as u64);
        if long > figures.longest || (long == figures.longest && row < figures.at) {
            figures.longest = long;
            figures.at = row;
        }
        if let Some(place) = self.lengths.get_mut(row as usize - self.rows.0) {
            *place = length;
        }
    }
}
