//! How many different numbers there are: they are spread over buckets by a product, then each bucket is counted in a
//! table that fits into the processor's caches.
//!
//! A number whose place holds another goes into the next round, in which places are others; all equal ones go with it.
//! So nothing is searched for, and no branch depends on the numbers.

use std::sync::Arc;
use std::time::Instant;

use crate::parallel::{run_parts, Part};
use crate::sized;

const MOST_BUCKETS: usize = sized(256, 4);
const BUCKET: usize = sized(1 << 12, 4); // numbers of a bucket, about
const STRETCHES: usize = sized(16, 2);
const FEW: usize = sized(1 << 14, 4); // numbers of a stretch: threads pay for many only
const ROUNDS: usize = 6; // after which what is left was chosen so that it crowds
const SPREADING: u64 = 0x9e37_79b9_7f4a_7c15; // odd: different numbers have different products

/// Returns how many buckets so many numbers are worth: a power of two.
pub fn buckets_for(numbers: usize) -> usize {
    (numbers / BUCKET).clamp(1, MOST_BUCKETS).next_power_of_two()
}

/// Numbers, in order of their buckets once they are sorted.
pub struct Pieces {
    products: Vec<u64>,
    bounds: Vec<usize>,
    buckets: usize,
}

impl Pieces {
    /// Prepares for numbers that are to be spread over so many buckets, the same for all pieces of a count.
    pub fn new(buckets: usize) -> Self {
        Pieces { products: Vec::new(), bounds: Vec::new(), buckets }
    }

    /// Adds a number.
    #[inline(always)]
    pub fn push(&mut self, value: u64) {
        self.products.push(value.wrapping_mul(SPREADING));
    }

    /// Adds numbers.
    pub fn extend(&mut self, values: &[u64]) {
        self.products.extend(values.iter().map(|value| value.wrapping_mul(SPREADING)));
    }

    /// Hands all numbers over.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Pieces::new(self.buckets))
    }

    /// Puts the numbers in order of their buckets.
    pub fn sort(&mut self) {
        if self.buckets == 1 || !self.bounds.is_empty() {
            return;
        }
        let shift = 64 - self.buckets.trailing_zeros();
        let mut places = [0; MOST_BUCKETS];
        for &product in &self.products {
            places[(product >> shift) as usize] += 1;
        }
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        self.bounds = places[..self.buckets].iter().copied().chain([before]).collect();
        let mut sorted = vec![0; before];
        for &product in &self.products {
            let place = &mut places[(product >> shift) as usize];
            sorted[*place] = product;
            *place += 1;
        }
        self.products = sorted;
    }

    fn of(&self, bucket: usize) -> &[u64] {
        match self.bounds.get(bucket..bucket + 2) {
            Some(bounds) => &self.products[bounds[0]..bounds[1]],
            None => &self.products,
        }
    }
}

/// The count of what several parts have, bucket by bucket; it can be left and taken up again.
pub struct Counting {
    stretches: Vec<Stretch>,
    done: Vec<bool>,
}

/// Neighbouring buckets, counted one after the other.
struct Stretch {
    pieces: Arc<Vec<Pieces>>,
    next: usize,
    end: usize,
    table: Vec<u64>,
    left: Vec<u64>,
    found: u64,
}

impl Part for Stretch {
    fn run(&mut self, deadline: Instant) -> bool {
        while self.next < self.end {
            self.found += self.count(self.next);
            self.next += 1;
            if Instant::now() >= deadline {
                break;
            }
        }
        self.next == self.end
    }
}

impl Stretch {
    fn count(&mut self, number: usize) -> u64 {
        let total: usize = self.pieces.iter().map(|piece| piece.of(number).len()).sum();
        self.clear(total);
        self.left.clear();
        self.left.resize(total + 1, 0); // what is written last may not count
        let (mut found, mut zero, mut left) = (0, 0, 0);
        for piece in self.pieces.iter() {
            let products = piece.of(number);
            found += place_all(products, &mut self.table, &mut self.left, &mut left, &mut zero);
        }
        for _ in 1..ROUNDS {
            if left == 0 {
                return found + zero;
            }
            let products: Vec<u64> = self.left[..left].iter().map(|&product| mixed(product)).collect();
            self.clear(left);
            left = 0;
            found += place_all(&products, &mut self.table, &mut self.left, &mut left, &mut zero);
        }
        let rest = &mut self.left[..left];
        rest.sort_unstable();
        found
            + zero
            + rest
                .iter()
                .zip(rest.iter().skip(1))
                .fold(u64::from(left > 0), |sum, (one, next)| sum + u64::from(one != next))
    }

    fn clear(&mut self, total: usize) {
        self.table.clear();
        self.table.resize((2 * total).next_power_of_two(), 0);
    }
}

/// Returns another product of the same number, not 0, and different for different ones.
fn mixed(product: u64) -> u64 {
    (product ^ product >> 32).wrapping_mul(SPREADING)
}

/// Puts each number into its place where that is free; returns how many were. `left` counts those put aside, `zero` is 1
/// when there was a 0.
#[inline(always)]
fn place_all(products: &[u64], table: &mut [u64], aside: &mut [u64], left: &mut usize, zero: &mut u64) -> u64 {
    let mask = table.len() - 1;
    let (mut found, mut end) = (0, *left);
    for &product in products {
        // The highest bits are the bucket's own, the lowest depend on too little.
        let place = &mut table[(product >> 24) as usize & mask];
        let held = *place;
        let free = held == 0;
        found += u64::from(free & (product != 0));
        *zero |= u64::from(product == 0);
        *place = if free { product } else { held };
        aside[end] = product;
        end += usize::from(!free & (held != product) & (product != 0));
    }
    *left = end;
    found
}

impl Counting {
    /// Prepares to count what pieces hold that are sorted.
    pub fn new(pieces: impl Iterator<Item = Pieces>) -> Self {
        let pieces = Arc::new(pieces.filter(|piece| !piece.products.is_empty()).collect::<Vec<_>>());
        let total: usize = pieces.iter().map(|piece| piece.products.len()).sum();
        let buckets = pieces.first().map_or(0, |piece| piece.buckets);
        let each = (buckets / (total / FEW).clamp(1, STRETCHES).next_power_of_two()).max(1);
        let stretches: Vec<_> = (0..buckets)
            .step_by(each)
            .map(|next| {
                let (table, left) = (Vec::new(), Vec::new());
                Stretch { pieces: Arc::clone(&pieces), next, end: next + each, table, left, found: 0 }
            })
            .collect();
        Counting { done: vec![false; stretches.len()], stretches }
    }

    /// Counts until the deadline; returns how many there are, or none when there is more to do.
    pub fn run(&mut self, deadline: Instant) -> Option<u64> {
        if !run_parts(&mut self.stretches, &mut self.done, deadline) {
            return None;
        }
        Some(self.stretches.iter().map(|stretch| stretch.found).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    fn counted(parts: &[Vec<u64>]) -> u64 {
        let buckets = buckets_for(parts.iter().map(Vec::len).sum());
        let pieces = parts.iter().map(|values| {
            let mut piece = Pieces::new(buckets);
            values.iter().for_each(|&value| piece.push(value));
            piece.sort();
            piece
        });
        let mut counting = Counting::new(pieces);
        loop {
            if let Some(found) = counting.run(Instant::now() + Duration::from_nanos(1)) {
                return found;
            }
        }
    }

    #[test]
    fn as_a_set_counts() {
        let mut seed = 7_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 40
        };
        let parts: Vec<Vec<u64>> = (0..5).map(|part| (0..part * 1000).map(|_| random() % 3000).collect()).collect();
        let set: HashSet<u64> = parts.iter().flatten().copied().collect();
        assert_eq!(counted(&parts), set.len() as u64);
        assert_eq!(counted(&[]), 0);
        assert_eq!(counted(&[vec![0, 0]]), 1);
        assert_eq!(counted(&[vec![0, u64::MAX], vec![u64::MAX]]), 2);
    }

    #[test]
    fn numbers_that_crowd_are_counted_in_time() {
        // All in one place of one bucket: products whose upper 40 bits are equal.
        let inverse = (0..6).fold(SPREADING, |x, _| x.wrapping_mul(2_u64.wrapping_sub(SPREADING.wrapping_mul(x))));
        let values: Vec<u64> = (1..200_000_u64).map(|low| low.wrapping_mul(inverse)).collect();
        assert_eq!(values[4].wrapping_mul(SPREADING), 5);
        assert_eq!(counted(&[values]), 199_999);
    }
}
