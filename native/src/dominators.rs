//! What every way from a root to a block goes through.
//!
//! T. Lengauer, R. E. Tarjan, "A Fast Algorithm for Finding Dominators in a Flowgraph", the version with simple linking.
//! Nodes are the rows, then the roots; numbers are those of a depth-first search, 0 being what leads to all roots.

use std::time::Instant;

use crate::digraph::{Compact, Graph, MOST, NONE, PATIENCE};
use crate::fallible::{collected, filled, push, Error, Result};
use crate::memory::prefetch_item;

/// What dominates all roots.
pub const SUPER: u32 = NONE - 1;

const AHEAD: usize = 4; // targets of a node that are asked for
const DEFERRED: u32 = 1 << 31; // the dominator is that of this number

/// A search that can be left and taken up again.
pub struct Job {
    graph: Compact,
    roots: Roots,
    stage: Stage,
    at: usize,
    /// The number of each node, or 0. Once edges are known by numbers, the first of those that each number is the
    /// semidominator of, its bucket; at last the dominator of each node.
    numbers: Vec<u32>,
    /// The node of each number, from then on.
    order: Vec<u32>,
    links: Vec<Link>,
    /// Of the numbers from each up to its `up`, the one with the lowest semidominator, from then on.
    labels: Vec<u32>,
    /// Nodes whose targets are being visited, with how many were; none all of whose targets were.
    open: Vec<(u32, u32)>,
    /// Numbers whose way up is being shortened.
    way: Vec<u32>,
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
    /// The lowest semidominator of those from here up to `up`.
    low: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Begin,
    Search,
    Count,
    Sum,
    Fill,
    Semi,
    Resolve,
    Name,
    Done,
}

impl Job {
    /// Prepares the search; root `entries[i]` points at row `entry[i]`. Both must be there. It takes a copy of the graph.
    pub fn new(graph: Graph, entry: &[u32], entries: &[u32], roots: usize) -> Result<Self> {
        if graph.rows() + roots > MOST || graph.edges() + entry.len() > u32::MAX as usize {
            return Err(Error::BadArgument);
        }
        let roots = Roots::new(graph.rows(), entry, entries, roots)?;
        Ok(Job {
            numbers: Vec::new(),
            order: Vec::new(),
            links: Vec::new(),
            labels: Vec::new(),
            first: Vec::new(),
            above: Vec::new(),
            stage: Stage::Begin,
            at: 0,
            graph: Compact::new(graph)?,
            roots,
            open: Vec::new(),
            way: Vec::new(),
        })
    }

    /// Searches until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        loop {
            match self.stage {
                Stage::Begin => self.begin_to_search()?,
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

    /// Takes what a search needs: by now the graph that was copied may be gone.
    fn begin_to_search(&mut self) -> Result<()> {
        self.numbers = filled(self.graph.rows() + self.roots.count(), 0)?;
        push(&mut self.links, Link { up: 0, low: 0 })?;
        self.stage = Stage::Search;
        Ok(())
    }

    /// Gives a node its number, and remembers to visit its targets.
    #[inline(always)]
    fn begin(&mut self, node: u32, up: u32) -> Result<()> {
        self.numbers[node as usize] = self.links.len() as u32;
        push(&mut self.links, Link { up, low: up })?;
        push(&mut self.open, (node, 0))
    }

    /// Numbers what roots lead to, depth first.
    fn search(&mut self) -> Result<()> {
        let mut steps = 0;
        while steps < PATIENCE {
            if let Some((node, visited)) = self.open.pop() {
                steps += 1 + self.descend(node, visited)?;
            } else if self.at == self.roots.count() {
                return self.begin_to_count();
            } else {
                let root = self.graph.rows() + self.at;
                self.begin(root as u32, 0)?;
                self.at += 1;
            }
        }
        Ok(())
    }

    /// Goes on from a node to the first of its targets that has no number yet; returns how many had one.
    fn descend(&mut self, node: u32, visited: u32) -> Result<usize> {
        let (up, from) = (self.numbers[node as usize], visited as usize);
        let targets = self.roots.or(&self.graph, node);
        let known = targets[from..].iter().take_while(|&&to| self.numbers[to as usize] != 0).count();
        let next = from + known + 1;
        if let Some(&to) = targets.get(from + known) {
            for &soon in targets[next..].iter().take(AHEAD) {
                prefetch_item(&self.numbers, soon as usize);
                self.graph.prefetch_row(soon as usize);
            }
            if let Some(&soon) = targets.get(next) {
                self.graph.prefetch_targets(soon as usize);
            }
            if next < targets.len() {
                push(&mut self.open, (node, next as u32))?;
            }
            self.begin(to, up)?;
        }
        Ok(known)
    }

    fn begin_to_count(&mut self) -> Result<()> {
        self.open = Vec::new();
        self.first = filled(self.links.len() + 1, 0)?;
        (self.stage, self.at) = (Stage::Count, 0);
        Ok(())
    }

    /// Calls `seen` with the numbers of both ends of edges from some nodes on; returns whether there are more.
    fn for_some_edges(&mut self, mut seen: impl FnMut(&mut Self, u32, u32)) -> bool {
        let mut steps = 0;
        while steps < PATIENCE && self.at < self.numbers.len() {
            let (node, from) = (self.at as u32, self.numbers[self.at]);
            if from != 0 {
                let count = self.roots.or(&self.graph, node).len();
                for at in 0..count {
                    let to = self.roots.or(&self.graph, node)[at];
                    seen(self, from, self.numbers[to as usize]);
                }
                steps += count;
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
            self.forget_edges()?;
            (self.stage, self.at) = (Stage::Semi, self.order.len() - 1);
        }
        Ok(())
    }

    /// Goes over to numbers alone.
    fn forget_edges(&mut self) -> Result<()> {
        self.graph = Compact::default();
        self.order = filled(self.links.len(), SUPER)?;
        for (node, number) in self.numbers.iter_mut().enumerate() {
            if *number != 0 {
                self.order[*number as usize] = node as u32;
            }
            *number = 0;
        }
        self.labels = collected(0..self.links.len() as u32)?;
        Ok(())
    }

    /// Finds semidominators from the last number to the first, and the dominators that follow from them.
    fn semi(&mut self) -> Result<()> {
        let mut steps = 0;
        while steps < PATIENCE {
            if self.at == 0 {
                (self.stage, self.at) = (Stage::Resolve, 1);
                (self.links, self.above, self.labels) = (Vec::new(), Vec::new(), Vec::new());
                return Ok(());
            }
            let number = self.at;
            let Link { up, mut low } = self.links[number];
            for at in self.first[number] as usize..self.first[number + 1] as usize {
                let above = self.above[at];
                steps += self.compress(above, number as u32 + 1)?;
                low = low.min(self.links[above as usize].low);
            }
            self.links[number].low = low;
            if low == up {
                self.first[number + 1] = up;
            } else {
                // There is a node for every number but the last, which is no semidominator.
                self.first[number + 1] = std::mem::replace(&mut self.numbers[low as usize], number as u32);
            }
            steps += 1 + self.empty_bucket(up, number as u32)?;
            self.at -= 1;
        }
        Ok(())
    }

    /// Finds the dominators of those that `semi` is the semidominator of, or what has the same dominator.
    fn empty_bucket(&mut self, semi: u32, last: u32) -> Result<usize> {
        let mut next = std::mem::take(&mut self.numbers[semi as usize]);
        let mut steps = 0;
        while next != 0 {
            let number = next as usize;
            next = self.first[number + 1];
            steps += 1 + self.compress(number as u32, last)?;
            let lower = self.links[number].low < semi;
            self.first[number + 1] = if lower { self.labels[number] | DEFERRED } else { semi };
        }
        Ok(steps)
    }

    /// Shortens the way up from a number, as far as it leads through those from `last` on; returns how long it was.
    #[inline(always)]
    fn compress(&mut self, number: u32, last: u32) -> Result<usize> {
        let (mut top, way) = (number, &mut self.way);
        while self.links[top as usize].up >= last {
            push(way, top)?;
            top = self.links[top as usize].up;
        }
        let (length, mut above) = (way.len(), self.links[top as usize]);
        while let Some(below) = way.pop() {
            let link = &mut self.links[below as usize];
            if above.low < link.low {
                link.low = above.low;
                self.labels[below as usize] = self.labels[top as usize];
            }
            link.up = above.up;
            (above, top) = (*link, below);
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
            (self.stage, self.at) = (Stage::Name, 1);
            self.numbers.fill(NONE);
        }
    }

    /// Writes down the dominator of each node.
    fn name(&mut self) {
        let until = self.order.len().min(self.at + PATIENCE);
        for number in self.at..until {
            let dominator = self.first[number + 1] as usize;
            self.numbers[self.order[number] as usize] = self.order[dominator];
        }
        self.at = until;
        if until == self.order.len() {
            self.stage = Stage::Done;
            (self.order, self.first) = (Vec::new(), Vec::new());
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
    fn or<'s>(&'s self, graph: &'s Compact, node: u32) -> &'s [u32] {
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
