//! One span of memory that is looked at before all others, for loops over nodes that mostly lie in one.

use crate::memory::{prefetch, Spans, Words};
use crate::tally::Hash;

/// Bytes between link and hash that mostly share a line of the cache.
pub const NEARBY: u64 = 32;

/// The span that was met last.
#[derive(Clone, Copy, Default)]
pub struct Near<'a> {
    start: u64,
    bytes: &'a [u8],
}

impl<'a> Near<'a> {
    /// What lies from a place on, or no bytes where that is in another span.
    #[inline(always)]
    pub fn from(&self, place: u64) -> &'a [u8] {
        let offset = place.wrapping_sub(self.start);
        if offset < self.bytes.len() as u64 {
            &self.bytes[offset as usize..]
        } else {
            &[]
        }
    }

    /// As [`Spans::word`]; its span is the next one that is near.
    #[inline(always)]
    pub fn word(&mut self, place: u64, words: Words, memory: &'a Spans<'a>) -> Option<u64> {
        let held = self.from(place);
        if held.len() >= words.size {
            return Some(words.decode(held));
        }
        self.word_elsewhere(place, words, memory)
    }

    #[cold]
    fn word_elsewhere(&mut self, place: u64, words: Words, memory: &'a Spans<'a>) -> Option<u64> {
        if let Some(span) = memory.below(place).and_then(|at| memory.all().get(at)) {
            if place - span.start < span.bytes.len() as u64 {
                *self = Near { start: span.start, bytes: span.bytes };
            }
        }
        memory.word(place, words, &mut 0)
    }

    /// Has a node's link and hash fetched; without a branch where it is null.
    #[inline(always)]
    pub fn fetch(&self, node: u64, next: u64, hash: Option<Hash>) {
        self.fetch_place(node.wrapping_add(next));
        if let Some(hash) = hash.filter(|hash| hash.offset.wrapping_sub(next).wrapping_add(NEARBY) > 2 * NEARBY) {
            self.fetch_place(node.wrapping_add(hash.offset));
        }
    }

    #[inline(always)]
    fn fetch_place(&self, place: u64) {
        let offset = place.wrapping_sub(self.start);
        prefetch(&self.bytes[if offset < self.bytes.len() as u64 { offset as usize } else { 0 }..]);
    }
}
