//! What every way from a root to a block goes through.
//!
//! T. Lengauer, R. E. Tarjan, "A Fast Algorithm for Finding Dominators in a Flowgraph", the version with simple linking.
//! Nodes are the rows, then the roots; numbers are those of a depth-first search, 0 being what leads to all roots.

use std::time::Instant;

use crate::digraph::{Graph, MOST, NONE, PATIENCE};
use crate::fallible::{collected, filled, push, Error, Result};
use crate::memory::prefetch_item;

/// What dominates all roots.
pub const SUPER: u32 = NONE - 1;

const DEFERRED: u32 = 1 << 31; // the dominator is that of this number

/// A search that can be left and taken up again.
pub struct Job<'a> {
    graph: Graph<'a>,
    roots: Roots,
    stage: Stage,
    at: usize,
    /// The number of each node, or 0; at last its dominator.
    numbers: Vec<u32>,
    /// The node of each number.
    order: Vec<u32>,
    links: Vec<Link>,
    open: Vec<(u32, u32)>,
    /// Where the edges of each number that come from greater ones begin. Numbers are done from the last on, so what
    /// follows the beginning of one that is done has room for its dominator; before it is known, for the next in its
    /// bucket.
    first: Vec<u32>,
    above: Vec<u32>,
}

/// Rows that roots point at, root by root.
struct Roots {
    first: Vec<usize>,
    to: Vec<u32>,
}

/// A number in the forest of those that were looked at.
#[derive(Clone, Copy)]
struct Link {
    /// What the number came from; later some number further up.
    up: u32,
    /// Of those from here up to `up`, the one with the lowest semidominator, and this.
    label: u32,
    low: u32,
    /// The first of those that this number is the semidominator of.
    bucket: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Search,
    Count,
    Sum,
    Fill,
    Semi,
    Resolve,
    Name,
    Done,
}

impl<'a> Job<'a> {
    /// Prepares the search; root `entries[i]` points at row `entry[i]`. Both must be there.
    pub fn new(graph: Graph<'a>, entry: &[u32], entries: &[u32], roots: usize) -> Result<Self> {
        if graph.rows() + roots > MOST || graph.edges() + entry.len() > u32::MAX as usize {
            return Err(Error::BadArgument);
        }
        let roots = Roots::new(graph.rows(), entry, entries, roots)?;
        let number = |root: usize| (graph.rows() + root) as u32;
        let open = collected((0..roots.count()).rev().map(|root| (number(root), 0)))?;
        let mut job = Job {
            numbers: filled(graph.rows() + roots.count(), 0)?,
            order: Vec::new(),
            links: Vec::new(),
            first: Vec::new(),
            above: Vec::new(),
            stage: Stage::Search,
            at: 0,
            graph,
            roots,
            open,
        };
        job.begin(SUPER, 0)?;
        Ok(job)
    }

    /// Searches until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        loop {
            match self.stage {
                Stage::Search => self.search()?,
                Stage::Count => self.count(),
                Stage::Sum => self.sum()?,
                Stage::Fill => self.fill()?,
                Stage::Semi => self.semi()?,
                Stage::Resolve => self.resolve(),
                Stage::Name => self.name(),
                Stage::Done => return Ok(true),
            }
            if Instant::now() >= deadline {
                return Ok(self.stage == Stage::Done);
            }
        }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.numbers.len()
    }

    /// Writes the immediate dominator of each node: a node, [`SUPER`], or [`NONE`] where no root leads to it.
    pub fn write(&self, dominators: &mut [u32]) {
        for (to, &dominator) in dominators.iter_mut().zip(&self.numbers) {
            *to = dominator;
        }
    }

    #[inline(always)]
    fn begin(&mut self, node: u32, up: u32) -> Result<()> {
        let number = self.order.len() as u32;
        push(&mut self.order, node)?;
        push(&mut self.links, Link { up, label: number, low: up, bucket: 0 })
    }

    /// Numbers what roots lead to, depth first.
    fn search(&mut self) -> Result<()> {
        let mut steps = 0;
        while steps < PATIENCE {
            let (node, up) = match self.open.pop() {
                Some(next) => next,
                None => return self.begin_to_count(),
            };
            steps += 1;
            if self.numbers[node as usize] != 0 {
                continue;
            }
            let number = self.order.len() as u32;
            self.numbers[node as usize] = number;
            self.begin(node, up)?;
            let targets = self.roots.or(self.graph, node);
            for &to in targets {
                prefetch_item(&self.numbers, to as usize);
            }
            for &to in targets {
                if self.numbers[to as usize] == 0 {
                    self.graph.prefetch_row(to as usize);
                    push(&mut self.open, (to, number))?;
                }
            }
            steps += targets.len();
            match self.open.iter().rev().nth(1) {
                Some(&(soon, _)) if (soon as usize) < self.graph.rows() => self.graph.prefetch_targets(soon as usize),
                _ => {}
            }
        }
        Ok(())
    }

    fn begin_to_count(&mut self) -> Result<()> {
        self.open = Vec::new();
        self.first = filled(self.order.len() + 1, 0)?;
        self.stage = Stage::Count;
        Ok(())
    }

    /// Calls `seen` with the numbers of both ends of edges from some nodes on; returns whether there are more.
    fn for_some_edges(&mut self, mut seen: impl FnMut(&mut Self, u32, u32)) -> bool {
        let mut steps = 0;
        while steps < PATIENCE && self.at < self.numbers.len() {
            let from = self.numbers[self.at];
            if from != 0 {
                let (graph, node) = (self.graph, self.at);
                if node < graph.rows() {
                    graph.targets(node).iter().for_each(|&to| seen(self, from, self.numbers[to as usize]));
                    steps += graph.targets(node).len();
                } else {
                    for at in self.roots.range(node - graph.rows()) {
                        seen(self, from, self.numbers[self.roots.to[at] as usize]);
                        steps += 1;
                    }
                }
            }
            self.at += 1;
            steps += 1;
        }
        self.at < self.numbers.len()
    }

    /// Counts edges from greater numbers. Of those from lower ones, which lead down the tree, only the highest matters.
    fn count(&mut self) {
        let more = self.for_some_edges(|job, from, to| {
            if from < to {
                let low = &mut job.links[to as usize].low;
                *low = from.min(*low);
            } else if from > to {
                job.first[to as usize] += 1;
            }
        });
        if !more {
            (self.stage, self.at) = (Stage::Sum, 0);
        }
    }

    fn sum(&mut self) -> Result<()> {
        let mut sum = 0;
        for first in &mut self.first {
            sum += *first;
            *first = sum;
        }
        self.above = filled(sum as usize, 0)?;
        self.stage = Stage::Fill;
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        let more = self.for_some_edges(|job, from, to| {
            if from > to {
                let first = &mut job.first[to as usize];
                *first -= 1;
                job.above[*first as usize] = from;
            }
        });
        if !more {
            (self.stage, self.at) = (Stage::Semi, self.order.len() - 1);
        }
        Ok(())
    }

    /// Finds semidominators from the last number to the first, and the dominators that follow from them.
    fn semi(&mut self) -> Result<()> {
        let mut steps = 0;
        while steps < PATIENCE {
            if self.at == 0 {
                (self.stage, self.at) = (Stage::Resolve, 1);
                (self.links, self.above) = (Vec::new(), Vec::new());
                return Ok(());
            }
            let number = self.at;
            let Link { up, mut low, .. } = self.links[number];
            for at in self.first[number] as usize..self.first[number + 1] as usize {
                let above = self.above[at];
                steps += self.compress(above, number as u32 + 1)?;
                low = low.min(self.links[above as usize].low);
            }
            self.links[number].low = low;
            if low == up {
                self.first[number + 1] = up;
            } else {
                self.first[number + 1] = self.links[low as usize].bucket;
                self.links[low as usize].bucket = number as u32;
            }
            steps += 1 + self.empty_bucket(up, number as u32)?;
            self.at -= 1;
        }
        Ok(())
    }

    /// Finds the dominators of those that `semi` is the semidominator of, or what has the same dominator.
    fn empty_bucket(&mut self, semi: u32, last: u32) -> Result<usize> {
        let mut next = std::mem::take(&mut self.links[semi as usize].bucket);
        let mut steps = 0;
        while next != 0 {
            let number = next as usize;
            next = self.first[number + 1];
            steps += 1 + self.compress(number as u32, last)?;
            let Link { label, low, .. } = self.links[number];
            self.first[number + 1] = if low < semi { label | DEFERRED } else { semi };
        }
        Ok(steps)
    }

    /// Shortens the way up from a number, as far as it leads through those from `last` on; returns how long it was.
    #[inline(always)]
    fn compress(&mut self, number: u32, last: u32) -> Result<usize> {
        let (mut top, open) = (number, &mut self.open);
        while self.links[top as usize].up >= last {
            push(open, (top, 0))?;
            top = self.links[top as usize].up;
        }
        let (length, mut above) = (open.len(), self.links[top as usize]);
        while let Some((below, _)) = open.pop() {
            let link = &mut self.links[below as usize];
            if above.low < link.low {
                (link.low, link.label) = (above.low, above.label);
            }
            link.up = above.up;
            above = *link;
        }
        Ok(length)
    }

    fn resolve(&mut self) {
        let until = self.order.len().min(self.at + PATIENCE);
        for number in self.at..until {
            let dominator = self.first[number + 1];
            if dominator & DEFERRED != 0 {
                self.first[number + 1] = self.first[(dominator & !DEFERRED) as usize + 1];
            }
        }
        self.at = until;
        if until == self.order.len() {
            (self.stage, self.at) = (Stage::Name, 0);
        }
    }

    /// Puts the dominator of each node in the place of its number.
    fn name(&mut self) {
        let until = self.numbers.len().min(self.at + PATIENCE);
        for number in &mut self.numbers[self.at..until] {
            *number = match *number {
                0 => NONE,
                known => self.order[self.first[known as usize + 1] as usize],
            };
        }
        self.at = until;
        if until == self.numbers.len() {
            self.stage = Stage::Done;
        }
    }
}

impl Roots {
    fn new(rows: usize, entry: &[u32], entries: &[u32], roots: usize) -> Result<Self> {
        let sound = entry.len() == entries.len() && entry.iter().all(|&row| (row as usize) < rows);
        if !sound || entries.iter().any(|&root| root as usize >= roots) {
            return Err(Error::BadArgument);
        }
        let mut first = filled(roots + 1, 0)?;
        entries.iter().for_each(|&root| first[root as usize] += 1);
        let mut sum = 0;
        for first in &mut first {
            sum += *first;
            *first = sum;
        }
        let mut to = filled(entry.len(), 0)?;
        for (&row, &root) in entry.iter().zip(entries).rev() {
            let first = &mut first[root as usize];
            *first -= 1;
            to[*first] = row;
        }
        Ok(Roots { first, to })
    }

    fn count(&self) -> usize {
        self.first.len() - 1
    }

    fn range(&self, root: usize) -> std::ops::Range<usize> {
        self.first[root]..self.first[root + 1]
    }

    /// The targets of a node of a graph, or of one of these roots.
    #[inline(always)]
    fn or<'s>(&'s self, graph: Graph<'s>, node: u32) -> &'s [u32] {
        match (node as usize).checked_sub(graph.rows()) {
            None => graph.targets(node as usize),
            Some(root) => &self.to[self.range(root)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digraph::samples::{Sample, INTO};

    fn found(rows: &[&[u32]], entry: &[u32], entries: &[u32], roots: usize) -> Vec<u32> {
        let sample = Sample::new(rows);
        let mut job = Job::new(sample.graph(), entry, entries, roots).unwrap();
        while !job.run(Instant::now()).unwrap() {}
        let mut dominators = vec![9; rows.len() + roots];
        job.write(&mut dominators);
        dominators
    }

    #[test]
    fn the_graph_of_lengauer_and_tarjan() {
        // Rows: R A B C D E F G H I J K L.
        let rows: [&[u32]; 13] = [
            &[1, 2, 3],
            &[4],
            &[1, 4, 5],
            &[6, 7 | INTO],
            &[12],
            &[8],
            &[9],
            &[9, 10],
            &[5, 11],
            &[11],
            &[9],
            &[9, 0],
            &[8],
        ];
        let expected = [13, 0, 0, 0, 0, 0, 3, 3, 0, 0, 7, 0, 4, SUPER];
        assert_eq!(found(&rows, &[0], &[0], 1), expected);
    }

    #[test]
    fn what_two_roots_lead_to_neither_dominates() {
        let rows: [&[u32]; 5] = [&[2], &[2], &[3], &[], &[0]];
        assert_eq!(found(&rows, &[1, 0], &[2, 0], 3), [5, 7, SUPER, 2, NONE, SUPER, SUPER, SUPER]);
        assert_eq!(found(&rows, &[], &[], 0), [NONE; 5]);
        assert_eq!(found(&[], &[], &[], 1), [SUPER]);
    }

    #[test]
    fn a_list_whose_end_leads_to_what_a_root_does_takes_no_longer() {
        // A climb along the list for each of the others would be the square of a great number.
        let count = 300_000u32;
        let others: Vec<u32> = (count..2 * count).collect();
        let nexts: Vec<[u32; 1]> = (1..count).map(|row| [row]).collect();
        let mut rows: Vec<&[u32]> = nexts.iter().map(|row| &row[..]).collect();
        rows.push(&others);
        rows.resize(2 * count as usize, &[]);
        let entry: Vec<u32> = std::iter::once(0).chain(count..2 * count).collect();
        let dominators = found(&rows, &entry, &vec![0; entry.len()], 1);
        let root = 2 * count;
        assert!((1..count).all(|row| dominators[row as usize] == row - 1));
        assert!((count..root).all(|row| dominators[row as usize] == root));
    }

    #[test]
    fn roots_that_are_none_are_refused() {
        let sample = Sample::new(&[&[], &[0]]);
        let new = |entry: &[u32], entries: &[u32], roots| Job::new(sample.graph(), entry, entries, roots).is_ok();
        assert!(new(&[1], &[1], 2));
        assert!(!new(&[2], &[1], 2));
        assert!(!new(&[1], &[2], 2));
        assert!(!new(&[1], &[], 2));
        assert!(!new(&[], &[], MOST));
    }
}
