//! Target memory as the kernels see it: sorted, disjoint spans of bytes, and numbers out of them.

/// The byte order and size of a target's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Bytes in a word: 4 or 8.
    pub size: usize,
    /// Whether the target's byte order is not this machine's.
    pub swapped: bool,
}

impl Words {
    /// Returns the word that `bytes` begins with; it must hold one.
    #[inline(always)]
    pub fn decode(self, bytes: &[u8]) -> u64 {
        if self.size == 8 {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[..8]);
            let value = u64::from_ne_bytes(word);
            if self.swapped {
                value.swap_bytes()
            } else {
                value
            }
        } else {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[..4]);
            let value = u32::from_ne_bytes(word);
            u64::from(if self.swapped { value.swap_bytes() } else { value })
        }
    }

    /// The largest number that a word holds.
    pub fn mask(self) -> u64 {
        if self.size == 8 {
            u64::MAX
        } else {
            u64::from(u32::MAX)
        }
    }
}

/// One stretch of memory that can be read.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    pub start: u64,
    pub bytes: &'a [u8],
}

impl Span<'_> {
    /// The address of the last byte; spans are never empty.
    fn last(&self) -> u64 {
        self.start.wrapping_add(self.bytes.len() as u64 - 1)
    }
}

/// All memory that can be read: sorted, disjoint, no span empty.
pub struct Spans<'a> {
    spans: Vec<Span<'a>>,
}

impl<'a> Spans<'a> {
    /// Takes spans that are sorted and disjoint; empty ones are dropped. None when they are not.
    pub fn new(mut spans: Vec<Span<'a>>) -> Option<Self> {
        spans.retain(|span| !span.bytes.is_empty());
        let ends = spans.iter().all(|span| span.last() >= span.start);
        let sorted = spans.windows(2).all(|pair| pair[0].last() < pair[1].start);
        if ends && sorted {
            Some(Spans { spans })
        } else {
            None
        }
    }

    /// All spans.
    pub fn all(&self) -> &[Span<'a>] {
        &self.spans
    }

    /// Returns the index of the last span that begins at or below an address, or None.
    #[inline]
    pub fn below(&self, address: u64) -> Option<usize> {
        self.spans.partition_point(|span| span.start <= address).checked_sub(1)
    }

    /// Returns where the first span that begins behind an address does, or None.
    pub fn next_start(&self, address: u64) -> Option<u64> {
        self.spans.get(self.spans.partition_point(|span| span.start <= address)).map(|span| span.start)
    }

    /// Returns what of the span that holds `address` lies from there on, or no bytes.
    #[inline]
    pub fn from(&self, address: u64, hint: &mut usize) -> &'a [u8] {
        let near = self.spans.get(*hint).filter(|span| holds(span, address));
        let span = match near {
            Some(span) => span,
            None => match self.below(address) {
                Some(at) if holds(&self.spans[at], address) => {
                    *hint = at;
                    &self.spans[at]
                }
                _ => return &[],
            },
        };
        &span.bytes[(address - span.start) as usize..]
    }

    /// Returns the word at an address; it may begin in one span and end in the next. None where it is in none.
    ///
    /// `hint` is the index of a span that is likely; it is kept up to date.
    #[inline]
    pub fn word(&self, address: u64, words: Words, hint: &mut usize) -> Option<u64> {
        let bytes = self.from(address, hint);
        if bytes.len() >= words.size {
            return Some(words.decode(bytes));
        }
        self.word_across(address, words)
    }

    #[cold]
    fn word_across(&self, address: u64, words: Words) -> Option<u64> {
        let (mut found, mut hint) = ([0; 8], 0);
        for (at, byte) in found.iter_mut().enumerate().take(words.size) {
            *byte = *self.from(address.checked_add(at as u64)?, &mut hint).first()?;
        }
        Some(words.decode(&found))
    }

    /// Whether a byte can be read.
    pub fn holds(&self, address: u64) -> bool {
        !self.from(address, &mut 0).is_empty()
    }
}

#[inline(always)]
fn holds(span: &Span, address: u64) -> bool {
    address >= span.start && address - span.start < span.bytes.len() as u64
}

/// Asks the processor to fetch what lies at the beginning of `bytes`.
#[inline(always)]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.first() {
        // A hint without effect on memory, for an address that is readable.
        unsafe { core::arch::x86_64::_mm_prefetch(byte as *const u8 as *const i8, core::arch::x86_64::_MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Asks the processor to fetch one of many items.
#[inline(always)]
pub fn prefetch_item<T>(items: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(at) {
        // As above.
        unsafe { core::arch::x86_64::_mm_prefetch(item as *const T as *const i8, core::arch::x86_64::_MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, at);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LITTLE: Words = Words { size: 8, swapped: cfg!(target_endian = "big") };

    fn spans<'a>(parts: &[(u64, &'a [u8])]) -> Spans<'a> {
        Spans::new(parts.iter().map(|&(start, bytes)| Span { start, bytes }).collect()).unwrap()
    }

    #[test]
    fn words_in_spans_and_across_them() {
        let (low, high) = ([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], [0, 0, 0, 3, 9, 9]);
        let memory = spans(&[(0x1000, &low), (0x100c, &high)]);
        assert_eq!(memory.word(0x1000, LITTLE, &mut 0), Some(1));
        assert_eq!(memory.word(0x1008, LITTLE, &mut 0), Some(2 | 3 << 56));
        assert_eq!(memory.word(0x100b, LITTLE, &mut 0), None);
        assert_eq!(memory.word(0xfff, LITTLE, &mut 0), None);
        assert_eq!(memory.word(u64::MAX, LITTLE, &mut 0), None);
    }

    #[test]
    fn swapped_and_short_words() {
        let memory = spans(&[(0, &[0, 0, 0, 5])]);
        let big = Words { size: 4, swapped: cfg!(target_endian = "little") };
        assert_eq!(memory.word(0, big, &mut 7), Some(5));
        assert_eq!(big.mask(), 0xffff_ffff);
    }

    #[test]
    fn spans_that_are_not_sorted_are_refused() {
        let bytes = [0; 4];
        let span = |start| Span { start, bytes: &bytes };
        assert!(Spans::new(vec![span(8), span(4)]).is_none());
        assert!(Spans::new(vec![span(4), span(6)]).is_none());
        assert!(Spans::new(vec![span(u64::MAX)]).is_none());
        assert!(Spans::new(vec![span(4), span(8)]).is_some());
    }

    #[test]
    fn the_last_bytes_of_the_address_space() {
        let memory = spans(&[(u64::MAX - 7, &[7; 8])]);
        assert!(memory.holds(u64::MAX));
        assert_eq!(memory.word(u64::MAX - 7, LITTLE, &mut 0), Some(0x0707_0707_0707_0707));
        assert_eq!(memory.word(u64::MAX - 3, LITTLE, &mut 0), None);
    }
}
