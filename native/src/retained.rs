//! What each node of a dominator tree keeps alive: sums from the leaves up.

use std::time::Instant;

use crate::digraph::{MOST, NONE, PATIENCE};
use crate::dominators::SUPER;
use crate::fallible::{filled, Error, Result};

/// A sum that can be left and taken up again.
pub struct Job<'a> {
    dominators: &'a [u32],
    size: &'a [u64],
    nodes: Vec<Node>,
    at: usize,
    /// The node that has just been added to, with all below it.
    here: Option<u32>,
    counted: bool,
    sound: bool,
    reached: usize,
    done: usize,
}

#[derive(Clone, Copy, Default)]
struct Node {
    bytes: u64,
    count: u32,
    /// How many of those below are not yet added.
    open: u32,
}

impl<'a> Job<'a> {
    /// Prepares the sums. There must be a size for each node.
    pub fn new(dominators: &'a [u32], size: &'a [u64]) -> Result<Self> {
        if size.len() != dominators.len() || size.len() > MOST {
            return Err(Error::BadArgument);
        }
        let nodes = filled(size.len(), Node::default())?;
        let (at, here, counted, sound, reached, done) = (0, None, false, true, 0, 0);
        Ok(Job { dominators, size, nodes, at, here, counted, sound, reached, done })
    }

    /// Adds until the deadline; returns whether it has come to an end, which it has too when that is no tree.
    pub fn run(&mut self, deadline: Instant) -> bool {
        loop {
            let more = if self.counted { self.add() } else { self.count() };
            if !more || !self.sound {
                self.sound = self.sound && self.done == self.reached;
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// Whether it was a tree, once all is done.
    pub fn sound(&self) -> bool {
        self.sound
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Writes the bytes and the number of the nodes that each dominates.
    pub fn write(&self, bytes: &mut [u64], counts: &mut [u32]) {
        for ((bytes, count), node) in bytes.iter_mut().zip(counts).zip(&self.nodes) {
            *bytes = node.bytes;
            *count = node.count;
        }
    }

    fn count(&mut self) -> bool {
        let until = self.nodes.len().min(self.at + PATIENCE);
        for node in self.at..until {
            let above = self.dominators[node];
            if above == NONE {
                continue;
            }
            self.reached += 1;
            self.nodes[node].bytes = self.size[node];
            self.nodes[node].count = 1;
            if above != SUPER {
                match self.dominators.get(above as usize) {
                    Some(&known) if known != NONE => self.nodes[above as usize].open += 1,
                    _ => self.sound = false,
                }
            }
        }
        self.at = until;
        if until == self.nodes.len() {
            self.counted = true;
            self.at = 0;
        }
        true
    }

    /// Returns whether there is more to do.
    fn add(&mut self) -> bool {
        for _ in 0..PATIENCE {
            let node = match self.here.take().or_else(|| self.next_leaf()) {
                Some(node) => node,
                None if self.at == self.nodes.len() => return false,
                None => continue,
            };
            self.done += 1;
            let above = self.dominators[node as usize];
            if above == SUPER {
                continue;
            }
            let Node { bytes, count, .. } = self.nodes[node as usize];
            let to = &mut self.nodes[above as usize];
            to.bytes = to.bytes.wrapping_add(bytes);
            to.count += count;
            to.open -= 1;
            // What lies ahead is met there.
            if to.open == 0 && (above as usize) < self.at {
                self.here = Some(above);
            }
        }
        true
    }

    fn next_leaf(&mut self) -> Option<u32> {
        let at = self.at;
        let node = self.nodes.get(at)?;
        self.at += 1;
        if node.open == 0 && self.dominators[at] != NONE {
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
        let mut job = Job::new(dominators, size).unwrap();
        while !job.run(Instant::now()) {}
        let (mut bytes, mut counts) = (vec![9; size.len()], vec![9; size.len()]);
        job.write(&mut bytes, &mut counts);
        Some((bytes, counts)).filter(|_| job.sound())
    }

    #[test]
    fn sums_from_the_leaves_up() {
        let sums = found(&[2, 0, 5, 0, NONE, SUPER], &[1, 10, 100, 1000, 7, 0]).unwrap();
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
        assert!(Job::new(&[SUPER], &[]).is_err());
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
