//! What each node of a dominator tree keeps alive: sums from the leaves up.

use std::time::Instant;

use crate::digraph::{MOST, NONE, PATIENCE};
use crate::dominators::SUPER;
use crate::fallible::{filled, push, Error, Result};

const MANY: u8 = u8::MAX;

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Count,
    Begin,
    Add,
}

/// A sum that can be left and taken up again.
pub struct Job<'a> {
    dominators: &'a [u32],
    size: &'a [u64],
    /// The bytes and the number of the nodes that each dominates.
    bytes: &'a mut [u64],
    counts: &'a mut [u32],
    /// How many of those right below each are not yet added; [`MANY`] where that is in `many`.
    open: Vec<u8>,
    many: Vec<(u32, u32)>,
    at: usize,
    /// The node that has just been added to, with all below it.
    here: Option<u32>,
    stage: Stage,
    sound: bool,
    reached: usize,
    done: usize,
}

impl<'a> Job<'a> {
    /// Prepares the sums, which are made in `bytes` and `counts`: of both there must be one for each node. Nodes behind
    /// the end of `size` have no bytes of their own.
    pub fn new(dominators: &'a [u32], size: &'a [u64], bytes: &'a mut [u64], counts: &'a mut [u32]) -> Result<Self> {
        let nodes = dominators.len();
        if size.len() > nodes || bytes.len() != nodes || counts.len() != nodes || nodes > MOST {
            return Err(Error::BadArgument);
        }
        let open = filled(nodes, 0)?;
        counts.fill(0);
        let (many, at, here, stage, sound, reached, done) = (Vec::new(), 0, None, Stage::Count, true, 0, 0);
        Ok(Job { dominators, size, bytes, counts, open, many, at, here, stage, sound, reached, done })
    }

    /// Adds until the deadline; returns whether it has come to an end, which it has too when that is no tree.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        loop {
            let more = match self.stage {
                Stage::Count => self.count(),
                Stage::Begin => self.begin()?,
                Stage::Add => self.add(),
            };
            if !more || !self.sound {
                self.sound = self.sound && self.done == self.reached;
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    /// Whether it was a tree, once all is done.
    pub fn sound(&self) -> bool {
        self.sound
    }

    /// Counts those right below each, where the numbers of all below will be.
    fn count(&mut self) -> bool {
        let until = self.open.len().min(self.at + PATIENCE);
        for &above in &self.dominators[self.at..until] {
            if above != NONE && above != SUPER {
                match self.dominators.get(above as usize) {
                    Some(&known) if known != NONE => self.counts[above as usize] += 1,
                    _ => self.sound = false,
                }
            }
        }
        self.go_on(until, Stage::Begin);
        true
    }

    /// Gives each its own bytes, and keeps how many are right below it in less room.
    fn begin(&mut self) -> Result<bool> {
        let until = self.open.len().min(self.at + PATIENCE);
        for node in self.at..until {
            let (below, reached) = (self.counts[node], self.dominators[node] != NONE);
            self.open[node] = below.min(u32::from(MANY)) as u8;
            if self.open[node] == MANY {
                push(&mut self.many, (node as u32, below))?;
            }
            self.reached += usize::from(reached);
            self.counts[node] = u32::from(reached);
            self.bytes[node] = self.size.get(node).copied().filter(|_| reached).unwrap_or(0);
        }
        self.go_on(until, Stage::Add);
        Ok(true)
    }

    fn go_on(&mut self, until: usize, next: Stage) {
        self.at = until;
        if until == self.open.len() {
            (self.stage, self.at) = (next, 0);
        }
    }

    /// Notes that one right below a node was added; returns whether it was the last.
    fn close_one(&mut self, node: usize) -> bool {
        if self.open[node] == MANY {
            if let Ok(at) = self.many.binary_search_by_key(&(node as u32), |&(node, _)| node) {
                self.many[at].1 -= 1;
                if self.many[at].1 == 0 {
                    self.open[node] = 0;
                }
            }
        } else {
            self.open[node] -= 1;
        }
        self.open[node] == 0
    }

    /// Returns whether there is more to do.
    fn add(&mut self) -> bool {
        for _ in 0..PATIENCE {
            let node = match self.here.take().or_else(|| self.next_leaf()) {
                Some(node) => node,
                None if self.at == self.open.len() => return false,
                None => continue,
            };
            self.done += 1;
            let above = self.dominators[node as usize];
            if above == SUPER {
                continue;
            }
            let to = above as usize;
            self.bytes[to] = self.bytes[to].wrapping_add(self.bytes[node as usize]);
            self.counts[to] += self.counts[node as usize];
            // What lies ahead is met there.
            if self.close_one(to) && to < self.at {
                self.here = Some(above);
            }
        }
        true
    }

    fn next_leaf(&mut self) -> Option<u32> {
        let at = self.at;
        let open = *self.open.get(at)?;
        self.at += 1;
        if open == 0 && self.dominators[at] != NONE {
            Some(at as u32)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dominators: &[u32], size: &[u64]) -> Option<(Vec<u64>, Vec<u32>)> {
        let (mut bytes, mut counts) = (vec![9; dominators.len()], vec![9; dominators.len()]);
        let mut job = Job::new(dominators, size, &mut bytes, &mut counts).unwrap();
        while !job.run(Instant::now()).unwrap() {}
        let sound = job.sound();
        Some((bytes, counts)).filter(|_| sound)
    }

    #[test]
    fn sums_from_the_leaves_up() {
        let sums = found(&[2, 0, 5, 0, NONE, SUPER], &[1, 10, 100, 1000, 7]).unwrap();
        assert_eq!(sums, (vec![1011, 10, 1111, 1000, 0, 1111], vec![3, 1, 4, 1, 0, 5]));
        assert_eq!(found(&[], &[]).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        assert!(found(&[1, 0], &[1, 1]).is_none());
        assert!(found(&[0], &[1]).is_none());
        assert!(found(&[1, NONE], &[1, 1]).is_none());
        assert!(found(&[2, SUPER], &[1, 1]).is_none());
        assert!(found(&[1, 2, 1, SUPER], &[1; 4]).is_none());
        assert!(Job::new(&[SUPER], &[1, 1], &mut [0], &mut [0]).is_err());
        assert!(Job::new(&[SUPER], &[1], &mut [], &mut [0]).is_err());
        assert!(Job::new(&[SUPER], &[1], &mut [0], &mut [0, 0]).is_err());
    }

    #[test]
    fn any_number_may_be_right_below_one() {
        for count in [1, 253, 254, 255, 256, 257, 70_000] {
            for top in [0, count / 2, count] {
                let mut dominators = vec![top as u32; count + 1];
                dominators[top] = SUPER;
                let (bytes, counts) = found(&dominators, &vec![8; count + 1]).unwrap();
                assert_eq!((bytes[top], counts[top]), (8 * (count as u64 + 1), count as u32 + 1));
            }
        }
    }

    #[test]
    fn a_list_of_a_million_either_way() {
        let count = 1_000_000u32;
        let down: Vec<u32> = std::iter::once(SUPER).chain(0..count - 1).collect();
        assert_eq!(found(&down, &vec![3; down.len()]).unwrap().0[0], 3_000_000);
        let up: Vec<u32> = (1..count).chain(std::iter::once(SUPER)).collect();
        assert_eq!(found(&up, &vec![3; up.len()]).unwrap().1[count as usize - 1], 1_000_000);
    }
}
