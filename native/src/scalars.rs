//! Numbers at many addresses, in any order and at any alignment.

use crate::memory::{prefetch, Spans};
use crate::parallel::{share, PART};
use crate::sized;

const WINDOW: usize = sized(64, 3); // addresses that are asked for before the first is read
const MOST: usize = 8;

/// How numbers are stored.
#[derive(Clone, Copy)]
pub struct Scalars {
    size: usize,
    swapped: bool,
    signed: bool,
}

impl Scalars {
    /// Takes numbers of so many bytes, 1 to 8; None of any other.
    pub fn new(size: u32, swapped: bool, signed: bool) -> Option<Self> {
        let size = size as usize;
        (1..=MOST).contains(&size).then_some(Scalars { size, swapped, signed })
    }

    /// Returns the number that `bytes` begins with; it must hold one.
    #[inline(always)]
    fn decode(self, bytes: &[u8]) -> u64 {
        let mut word = [0; MOST];
        if self.size == MOST {
            word.copy_from_slice(&bytes[..MOST]);
        } else if cfg!(target_endian = "big") != self.swapped {
            word[MOST - self.size..].copy_from_slice(&bytes[..self.size]);
        } else {
            word[..self.size].copy_from_slice(&bytes[..self.size]);
        }
        let value = u64::from_ne_bytes(word);
        let value = if self.swapped { value.swap_bytes() } else { value };
        let unused = 8 * (MOST - self.size) as u32;
        if self.signed {
            ((value << unused) as i64 >> unused) as u64
        } else {
            value
        }
    }

    /// Returns the number at an address; it may begin in one span and end in the next. None where it is in none.
    #[inline]
    fn read(self, memory: &Spans, address: u64, hint: &mut usize) -> Option<u64> {
        let bytes = memory.from(address, hint);
        if bytes.len() >= self.size {
            return Some(self.decode(bytes));
        }
        self.read_across(memory, address)
    }

    #[cold]
    fn read_across(self, memory: &Spans, address: u64) -> Option<u64> {
        let (mut found, mut hint) = ([0; MOST], 0);
        for (at, byte) in found.iter_mut().enumerate().take(self.size) {
            *byte = *memory.from(address.checked_add(at as u64)?, &mut hint).first()?;
        }
        Some(self.decode(&found))
    }
}

/// Reads the number at each address, 0 where memory does not hold it, and whether it does.
pub fn gather(memory: &Spans, addresses: &[u64], scalars: Scalars, values: &mut [u64], known: &mut [u8]) {
    let parts = addresses.chunks(PART).zip(values.chunks_mut(PART)).zip(known.chunks_mut(PART));
    share(addresses.len(), parts, |((addresses, values), known)| {
        gather_part(memory, addresses, scalars, values, known)
    });
}

fn gather_part(memory: &Spans, addresses: &[u64], scalars: Scalars, values: &mut [u64], known: &mut [u8]) {
    let mut hint = 0;
    let windows = addresses.chunks(WINDOW).zip(values.chunks_mut(WINDOW)).zip(known.chunks_mut(WINDOW));
    for ((addresses, values), known) in windows {
        for &address in addresses {
            prefetch(memory.from(address, &mut hint));
        }
        for ((&address, value), known) in addresses.iter().zip(values).zip(known) {
            let found = scalars.read(memory, address, &mut hint);
            *value = found.unwrap_or(0);
            *known = u8::from(found.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Span;

    #[test]
    fn numbers_of_all_sizes_in_both_orders() {
        let bytes = [0x81, 2, 3, 4, 5, 6, 7, 0x88, 9];
        let memory =
            Spans::new(vec![Span { start: 16, bytes: &bytes[..3] }, Span { start: 19, bytes: &bytes[3..] }]).unwrap();
        let big = cfg!(target_endian = "big");
        let read = |size, is_big: bool, signed, address| {
            let (mut values, mut known) = ([9], [9]);
            gather(&memory, &[address], Scalars::new(size, is_big != big, signed).unwrap(), &mut values, &mut known);
            (known == [1]).then(|| values[0])
        };
        assert_eq!(read(1, false, false, 16), Some(0x81));
        assert_eq!(read(1, true, true, 16), Some(0x81u8 as i8 as i64 as u64));
        assert_eq!(read(3, false, false, 16), Some(0x030281));
        assert_eq!(read(3, true, false, 16), Some(0x810203));
        assert_eq!(read(8, false, false, 16), Some(0x8807060504030281));
        assert_eq!(read(8, true, true, 17), Some(0x0203040506078809));
        assert_eq!(read(5, true, true, 16), Some(0x8102030405 | 0xffffff << 40));
        assert_eq!(read(2, false, false, 24), None);
        assert_eq!(read(1, false, false, 15), None);
        assert_eq!(read(8, false, false, u64::MAX), None);
        assert!(Scalars::new(0, false, false).is_none() && Scalars::new(9, false, false).is_none());
    }
}
