//! What each node of a dominator tree keeps alive: sums from the leaves up.

use std::time::Instant;

use crate::digraph::{MOST, NONE, PATIENCE};
use crate::dominators::SUPER;
use crate::fallible::{filled, Error, Result};

/// A sum that can be left and taken up again.
pub struct Job<'a> {
    dominators: &'a [u32],
    size: &'a [u64],
    /// The bytes and the number of the nodes that each dominates.
    bytes: &'a mut [u64],
    counts: &'a mut [u32],
    /// How many of those below each are not yet added.
    open: Vec<u32>,
    at: usize,
    /// The node that has just been added to, with all below it.
    here: Option<u32>,
    counted: bool,
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
        let (at, here, counted, sound, reached, done) = (0, None, false, true, 0, 0);
        Ok(Job { dominators, size, bytes, counts, open, at, here, counted, sound, reached, done })
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

    fn count(&mut self) -> bool {
        let until = self.open.len().min(self.at + PATIENCE);
        for node in self.at..until {
            let above = self.dominators[node];
            (self.bytes[node], self.counts[node]) = (0, 0);
            if above == NONE {
                continue;
            }
            self.reached += 1;
            self.bytes[node] = self.size.get(node).copied().unwrap_or(0);
            self.counts[node] = 1;
            if above != SUPER {
                match self.dominators.get(above as usize) {
                    Some(&known) if known != NONE => self.open[above as usize] += 1,
                    _ => self.sound = false,
                }
            }
        }
        self.at = until;
        if until == self.open.len() {
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
            self.open[to] -= 1;
            // What lies ahead is met there.
            if self.open[to] == 0 && to < self.at {
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
        while !job.run(Instant::now()) {}
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
    fn a_list_of_a_million_either_way() {
        let count = 1_000_000u32;
        let down: Vec<u32> = std::iter::once(SUPER).chain(0..count - 1).collect();
        assert_eq!(found(&down, &vec![3; down.len()]).unwrap().0[0], 3_000_000);
        let up: Vec<u32> = (1..count).chain(std::iter::once(SUPER)).collect();
        assert_eq!(found(&up, &vec![3; up.len()]).unwrap().1[count as usize - 1], 1_000_000);
    }
}
