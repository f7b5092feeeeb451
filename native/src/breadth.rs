//! Shortest ways from roots: by pointers to beginnings first, then by any to what is left.

use std::time::Instant;

use crate::digraph::{Bits, Graph, NONE, PATIENCE};
use crate::fallible::{push, with_room, Error, Result};
use crate::graph::{MAYBE, NOT, REACHED};
use crate::memory::prefetch_item;

/// A root, as what points at a block.
pub const ROOT: u32 = NONE - 1;

const DEAD: u32 = NONE - 1; // depth of what does not count
const LATER: u32 = 1 << 31; // in the depth of what was reached by any edges
const AHEAD: usize = 24; // rows that are fetched before they are looked at

/// A search that can be left and taken up again.
pub struct Job<'a> {
    graph: Graph<'a>,
    nodes: Vec<Node>,
    maybe: Bits,
    stage: Stage,
    /// Rows by beginnings, in the order of their depths.
    order: Vec<u32>,
    /// Rows by any edges, in the order of their depths.
    later: Vec<u32>,
    at: usize,
    later_at: usize,
    depth: u32,
    useful: Bits,
}

#[derive(Clone, Copy)]
struct Node {
    depth: u32,
    parent: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Beginnings,
    Bounds,
    Any,
    Done,
}

impl<'a> Job<'a> {
    /// Prepares the search among the rows with a non-zero byte in `live`; `roots` says what roots point at, as states
    /// do. There must be one of both for each row.
    pub fn new(graph: Graph<'a>, roots: &[u8], live: &[u8]) -> Result<Self> {
        if roots.len() != graph.rows() || live.len() != graph.rows() {
            return Err(Error::BadArgument);
        }
        let (mut nodes, mut order, mut maybe) = (with_room(live.len())?, Vec::new(), Bits::new(live.len())?);
        for (row, (&root, &live)) in roots.iter().zip(live).enumerate() {
            let (depth, parent) = match root {
                _ if live == 0 => (DEAD, NONE),
                NOT => (NONE, NONE),
                MAYBE => {
                    maybe.add(row);
                    (NONE, NONE)
                }
                REACHED..=u8::MAX => {
                    push(&mut order, row as u32)?;
                    (0, ROOT)
                }
            };
            push(&mut nodes, Node { depth, parent })?;
        }
        let (later, useful) = (Vec::new(), Bits::default());
        let stage = Stage::Beginnings;
        Ok(Job { graph, nodes, maybe, stage, order, later, at: 0, later_at: 0, depth: 0, useful })
    }

    /// Searches until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        loop {
            match self.stage {
                Stage::Beginnings => self.by_beginnings()?,
                Stage::Bounds => self.bounds()?,
                Stage::Any => self.by_any()?,
                Stage::Done => return Ok(true),
            }
            if Instant::now() >= deadline {
                return Ok(self.stage == Stage::Done);
            }
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.nodes.len()
    }

    /// Writes for each row what it is reached from, and how far it is.
    pub fn write(&self, parents: &mut [u32], depths: &mut [u32]) {
        for ((parent, depth), node) in parents.iter_mut().zip(depths).zip(&self.nodes) {
            *parent = node.parent;
            *depth = if node.depth >= DEAD { NONE } else { node.depth & !LATER };
        }
    }

    fn by_beginnings(&mut self) -> Result<()> {
        let mut steps = 0;
        while steps < PATIENCE {
            let row = match self.order.get(self.at) {
                Some(&row) => row,
                None => {
                    self.stage = Stage::Bounds;
                    self.at = 0;
                    self.useful = Bits::new(self.nodes.len())?;
                    return Ok(());
                }
            };
            self.fetch_ahead(&self.order, self.at);
            let depth = self.nodes[row as usize].depth + 1;
            let (targets, interior) = (self.graph.targets(row as usize), self.graph.interior(row as usize));
            for (&to, &interior) in targets.iter().zip(interior) {
                if interior == 0 {
                    reach(&mut self.nodes[to as usize], row, to, depth, &mut self.order)?;
                }
            }
            steps += 1 + targets.len();
            self.at += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn fetch_ahead(&self, rows: &[u32], at: usize) {
        if let Some(&row) = rows.get(at + AHEAD) {
            self.graph.prefetch_row(row as usize);
        }
        if let Some(&row) = rows.get(at + 2 * AHEAD / 3) {
            self.graph.prefetch_targets(row as usize);
        }
        if let Some(&row) = rows.get(at + AHEAD / 3) {
            for &to in self.graph.targets(row as usize).iter().take(8) {
                prefetch_item(&self.nodes, to as usize);
            }
        }
    }

    /// Marks the rows from which edges lead on to what beginnings alone do not reach.
    fn bounds(&mut self) -> Result<()> {
        let mut steps = 0;
        while steps < PATIENCE && self.at < self.nodes.len() {
            let row = self.at;
            let depth = self.nodes[row].depth;
            if depth < DEAD {
                let (targets, interior) = (self.graph.targets(row), self.graph.interior(row));
                let mut edges = targets.iter().zip(interior);
                if edges.any(|(&to, &interior)| interior != 0 && self.nodes[to as usize].depth == NONE) {
                    self.useful.add(row);
                }
                steps += targets.len();
            }
            steps += 1;
            self.at += 1;
        }
        if self.at == self.nodes.len() {
            self.begin_with_any()?;
        }
        Ok(())
    }

    fn begin_with_any(&mut self) -> Result<()> {
        let useful = std::mem::take(&mut self.useful);
        self.order.retain(|&row| useful.has(row as usize));
        for (row, node) in self.nodes.iter_mut().enumerate() {
            if self.maybe.has(row) && node.depth == NONE {
                *node = Node { depth: LATER, parent: ROOT };
                push(&mut self.later, row as u32)?;
            }
        }
        (self.stage, self.at) = (Stage::Any, 0);
        Ok(())
    }

    /// Goes on from both lists at once, depth by depth.
    fn by_any(&mut self) -> Result<()> {
        let mut steps = 0;
        while steps < PATIENCE {
            let depth_of = |row: Option<&u32>| row.map(|&row| self.nodes[row as usize].depth & !LATER);
            let (first, second) = (depth_of(self.order.get(self.at)), depth_of(self.later.get(self.later_at)));
            let row = if first == Some(self.depth) {
                self.at += 1;
                self.order[self.at - 1]
            } else if second == Some(self.depth) {
                self.later_at += 1;
                self.later[self.later_at - 1]
            } else if let Some(next) = first.into_iter().chain(second).min() {
                self.depth = next;
                continue;
            } else {
                self.stage = Stage::Done;
                return Ok(());
            };
            self.fetch_ahead(&self.order, self.at);
            self.fetch_ahead(&self.later, self.later_at);
            let targets = self.graph.targets(row as usize);
            for &to in targets {
                reach(&mut self.nodes[to as usize], row, to, (self.depth + 1) | LATER, &mut self.later)?;
            }
            steps += 1 + targets.len();
        }
        Ok(())
    }
}

/// Takes note of an edge that ends at this depth; of those that do, the one from the lowest row counts.
#[inline(always)]
fn reach(node: &mut Node, from: u32, to: u32, depth: u32, found: &mut Vec<u32>) -> Result<()> {
    if node.depth == NONE {
        *node = Node { depth, parent: from };
        push(found, to)?;
    } else if node.depth == depth {
        node.parent = node.parent.min(from);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digraph::samples::{Sample, INTO};

    fn found(rows: &[&[u32]], roots: &[u8], live: &[u8]) -> (Vec<u32>, Vec<u32>) {
        let sample = Sample::new(rows);
        let mut job = Job::new(sample.graph(), roots, live).unwrap();
        while !job.run(Instant::now()).unwrap() {}
        let (mut parents, mut depths) = (vec![9; rows.len()], vec![9; rows.len()]);
        job.write(&mut parents, &mut depths);
        (parents, depths)
    }

    #[test]
    fn beginnings_before_middles_even_where_that_is_longer() {
        let rows: [&[u32]; 5] = [&[1, 3 | INTO], &[2], &[3], &[], &[3]];
        let (parents, depths) = found(&rows, &[2, 0, 0, 0, 1], &[1; 5]);
        assert_eq!((parents, depths), (vec![ROOT, 0, 1, 2, ROOT], vec![0, 1, 2, 3, 0]));
    }

    #[test]
    fn middles_go_on_at_the_depth_where_they_are() {
        let rows: [&[u32]; 6] = [&[1], &[3 | INTO], &[4], &[4 | INTO], &[], &[2]];
        let (parents, depths) = found(&rows, &[2, 0, 1, 0, 0, 0], &[1; 6]);
        assert_eq!((parents, depths), (vec![ROOT, 0, ROOT, 1, 2, NONE], vec![0, 1, 0, 2, 1, NONE]));
    }

    #[test]
    fn of_equals_the_lowest() {
        let rows: [&[u32]; 4] = [&[2], &[3], &[3], &[]];
        assert_eq!(found(&rows, &[0, 2, 2, 0], &[1; 4]).0, [NONE, ROOT, ROOT, 1]);
        assert_eq!(found(&rows, &[2, 2, 2, 0], &[1, 0, 1, 1]).0, [ROOT, NONE, ROOT, 2]);
        assert_eq!(found(&[], &[], &[]), (vec![], vec![]));
    }

    #[test]
    fn a_mark_is_needed_for_every_row() {
        let sample = Sample::new(&[&[]]);
        assert!(Job::new(sample.graph(), &[], &[1]).is_err());
        assert!(Job::new(sample.graph(), &[1], &[]).is_err());
    }
}
