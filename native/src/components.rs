//! Strongly connected components of a graph of blocks.
//!
//! D. J. Pearce, "A space-efficient algorithm for finding strongly connected components": one number for each row, which
//! is 0 for a row not seen, then the lowest visit that it leads back to, then its component, from the greatest down.

use std::time::Instant;

use crate::digraph::{Graph, MOST, NONE, PATIENCE};
use crate::fallible::{collected, filled, push, Error, Result};
use crate::memory::prefetch_item;

const FIRST: u32 = NONE - 1; // component; NONE is that of rows that do not count
const INNER: u32 = 1 << 31; // of a row on the way that leads back behind itself

/// A search that can be left and taken up again.
pub struct Job<'a> {
    graph: Graph<'a>,
    interior: bool,
    numbers: Vec<u32>,
    way: Vec<Visit>,
    open: Vec<u32>,
    next_row: usize,
    next_number: u32,
    component: u32,
}

/// A row on the way, perhaps with [`INNER`], and how many of its edges were looked at.
struct Visit {
    row: u32,
    done: u32,
}

impl<'a> Job<'a> {
    /// Prepares the search among the rows with a non-zero byte in `wanted`; without `interior`, edges to middles do not
    /// count. There must be a byte for each row.
    pub fn new(graph: Graph<'a>, wanted: &[u8], interior: bool) -> Result<Self> {
        if wanted.len() != graph.rows() {
            return Err(Error::BadArgument);
        }
        let numbers = collected(wanted.iter().map(|&wanted| if wanted != 0 { 0 } else { NONE }))?;
        let (way, open) = (Vec::new(), Vec::new());
        Ok(Job { graph, interior, numbers, way, open, next_row: 0, next_number: 1, component: FIRST })
    }

    /// Searches until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        while self.some_steps()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.numbers.len()
    }

    /// Writes the component of each row, numbered by their lowest rows, or [`NONE`].
    pub fn write(&self, components: &mut [u32]) -> Result<()> {
        let mut places = filled((FIRST - self.component) as usize, NONE)?;
        let mut next = 0;
        for (to, &number) in components.iter_mut().zip(&self.numbers) {
            *to = match number {
                NONE => NONE,
                _ => {
                    let place = &mut places[(FIRST - number) as usize];
                    if *place == NONE {
                        *place = next;
                        next += 1;
                    }
                    *place
                }
            };
        }
        Ok(())
    }

    /// Returns whether there is more to do.
    fn some_steps(&mut self) -> Result<bool> {
        let mut steps = 0;
        while steps < PATIENCE {
            if let Some(visit) = self.way.pop() {
                steps += self.go_on(visit)?;
                continue;
            }
            let rest = &self.numbers[self.next_row..];
            let looked = rest.iter().take(PATIENCE).take_while(|&&number| number != 0).count();
            self.next_row += looked;
            steps += looked + 1;
            if self.next_row == self.numbers.len() {
                return Ok(false);
            }
            if self.numbers[self.next_row] == 0 {
                self.enter(self.next_row as u32)?;
            }
        }
        Ok(true)
    }

    #[inline]
    fn enter(&mut self, row: u32) -> Result<()> {
        self.numbers[row as usize] = self.next_number;
        self.next_number += 1;
        for &to in self.graph.targets(row as usize).iter().take(8) {
            prefetch_item(&self.numbers, to as usize);
            self.graph.prefetch_row(to as usize);
        }
        push(&mut self.way, Visit { row, done: 0 })
    }

    /// Looks at edges of a row up to one that leads on, and at all of them leaves it; returns how many these were.
    #[inline]
    fn go_on(&mut self, visit: Visit) -> Result<usize> {
        let row = (visit.row & !INNER) as usize;
        let (targets, interior) = (self.graph.targets(row), self.graph.interior(row));
        let (mut inner, mut number) = (visit.row & INNER, self.numbers[row]);
        let from = visit.done as usize;
        let until = targets.len().min(from + PATIENCE);
        for at in from..until {
            if interior[at] != 0 && !self.interior {
                continue;
            }
            let below = self.numbers[targets[at] as usize];
            if below == 0 {
                self.numbers[row] = number;
                // The edge is looked at again once what it leads to is numbered.
                push(&mut self.way, Visit { row: row as u32 | inner, done: at as u32 })?;
                self.enter(targets[at])?;
                return Ok(at + 1 - from);
            }
            if below < number {
                number = below;
                inner = INNER;
            }
        }
        self.numbers[row] = number;
        if until < targets.len() {
            push(&mut self.way, Visit { row: row as u32 | inner, done: until as u32 })?;
        } else if inner != 0 {
            push(&mut self.open, row as u32)?;
        } else {
            self.close(row, number);
        }
        Ok(until - from + 1)
    }

    /// Gives a row, and all that lead back to it, their component.
    fn close(&mut self, row: usize, number: u32) {
        self.next_number -= 1;
        while let Some(&member) = self.open.last() {
            if self.numbers[member as usize] < number {
                break;
            }
            self.open.pop();
            self.numbers[member as usize] = self.component;
            self.next_number -= 1;
        }
        self.numbers[row] = self.component;
        self.component -= 1;
    }
}

// Numbers of visits are below all components.
const _: () = assert!(MOST < (FIRST as usize) - MOST);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digraph::samples::{Sample, INTO};

    fn found(rows: &[&[u32]], wanted: &[u8], interior: bool) -> Vec<u32> {
        let sample = Sample::new(rows);
        let mut job = Job::new(sample.graph(), wanted, interior).unwrap();
        while !job.run(Instant::now()).unwrap() {}
        let mut components = vec![9; rows.len()];
        job.write(&mut components).unwrap();
        components
    }

    #[test]
    fn circles_and_ways_between_them() {
        let rows: [&[u32]; 6] = [&[1], &[2, 5], &[0], &[2, 4], &[3 | INTO], &[]];
        assert_eq!(found(&rows, &[1; 6], true), [0, 0, 0, 1, 1, 2]);
        assert_eq!(found(&rows, &[1; 6], false), [0, 0, 0, 1, 2, 3]);
        assert_eq!(found(&rows, &[1, 0, 1, 1, 1, 1], true), [0, NONE, 1, 2, 2, 3]);
        assert_eq!(found(&[], &[], true), []);
    }

    #[test]
    fn a_circle_of_a_million() {
        let rows: Vec<[u32; 1]> = (1..=1_000_000).map(|row| [row % 1_000_000]).collect();
        let rows: Vec<&[u32]> = rows.iter().map(|row| &row[..]).collect();
        assert!(found(&rows, &vec![1; rows.len()], true).iter().all(|&component| component == 0));
    }

    #[test]
    fn a_mark_is_needed_for_every_row() {
        assert!(Job::new(Sample::new(&[&[]]).graph(), &[], true).is_err());
    }
}
