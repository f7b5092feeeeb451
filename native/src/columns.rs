//! Work on whole columns: rows of addresses, counts of values, regions of slabs, pages that hold nothing.

use std::collections::HashMap;

use crate::fallible::{append_zeros, collected, Result};
use crate::memory::Spans;
use crate::parallel::{share, PART};
use crate::sized;

/// The row of each wanted address in a sorted column, or -1.
pub fn rows_of(address: &[u64], wanted: &[u64], rows: &mut [i64]) {
    let parts = wanted.chunks(PART).zip(rows.chunks_mut(PART));
    share(wanted.len(), parts, |(wanted, rows)| rows_of_part(address, wanted, rows));
}

fn rows_of_part(address: &[u64], wanted: &[u64], rows: &mut [i64]) {
    let mut near = 0;
    for (&value, row) in wanted.iter().zip(rows) {
        // Neighbours in a list are often neighbours in memory.
        let at = match address.get(near) {
            Some(&here) if here <= value => near + gallop(&address[near..], value),
            _ => address.partition_point(|&start| start < value),
        };
        *row = if address.get(at) == Some(&value) { at as i64 } else { -1 };
        near = at;
    }
}

/// The first place of a sorted column that is not below `value`, which is not far as a rule.
fn gallop(column: &[u64], value: u64) -> usize {
    let mut step = 1;
    while step < column.len() && column[step] < value {
        step *= 2;
    }
    let low = step / 2;
    let high = column.len().min(step + 1);
    low + column[low..high].partition_point(|&start| start < value)
}

const NEAR: usize = 1 << 10; // values that are found without a look at the map
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 over the golden ratio

/// How often each value occurs in each category.
///
/// `category[kinds[row]]` is the category of a row; 255 leaves it out. Writes the distinct values, sorted, and
/// `categories` counts for each, and returns how many values that are; None when `found` has no room for them, or a
/// category is too great.
pub fn count_values(
    values: &[u64],
    kinds: &[u8],
    category: &[u8; 256],
    categories: usize,
    found: &mut [u64],
    counts: &mut [u64],
) -> Result<Option<usize>> {
    let mut slots: HashMap<u64, usize> = HashMap::new();
    let mut sums: Vec<u64> = Vec::new();
    let mut near = [(0, 0); NEAR]; // values that were met, and one more than their slots
    for (&value, &kind) in values.iter().zip(kinds) {
        let which = category[kind as usize];
        if which == u8::MAX {
            continue;
        }
        if usize::from(which) >= categories {
            return Ok(None);
        }
        let at = (value.wrapping_mul(SPREAD) >> 32) as usize % NEAR;
        if near[at].0 != value || near[at].1 == 0 {
            let next = slots.len();
            slots.try_reserve(1)?;
            let slot = *slots.entry(value).or_insert(next);
            if slot == next {
                if next >= found.len() {
                    return Ok(None);
                }
                append_zeros(&mut sums, categories)?;
            }
            near[at] = (value, slot + 1);
        }
        let slot = near[at].1 - 1;
        sums[slot * categories + usize::from(which)] += 1;
    }
    let mut sorted = collected(slots.into_iter())?;
    sorted.sort_unstable();
    for (row, &(value, slot)) in sorted.iter().enumerate() {
        found[row] = value;
        counts[row * categories..(row + 1) * categories].copy_from_slice(&sums[slot * categories..][..categories]);
    }
    Ok(Some(sorted.len()))
}

/// The regions of jemalloc slabs, slab by slab: a set bit of a bitmap is a free region (bitmap.h, flat bitmaps).
///
/// Each slab has `groups` words in `bitmaps`. Returns how many regions there are; None when a slab has more than
/// its bitmap or the columns hold.
pub fn slab_regions(
    start: &[u64],
    region: &[u64],
    count: &[u32],
    bitmaps: &[u64],
    groups: usize,
    address: &mut [u64],
    free: &mut [u8],
) -> Option<usize> {
    let mut row = 0usize;
    for slab in 0..start.len() {
        let regions = count[slab] as usize;
        let bits = bitmaps.get(slab * groups..(slab + 1) * groups)?;
        if regions > 64 * groups || row + regions > address.len().min(free.len()) {
            return None;
        }
        for at in 0..regions {
            address[row] = start[slab].wrapping_add(region[slab].wrapping_mul(at as u64));
            free[row] = (bits[at / 64] >> (at % 64) & 1) as u8;
            row += 1;
        }
    }
    Some(row)
}

/// Counts for each interval the whole pages in it that can be read, and those of them that hold only zeros.
pub fn page_census(memory: &Spans, starts: &[u64], ends: &[u64], page: u64, whole: &mut [u64], zero: &mut [u64]) {
    whole.fill(0);
    zero.fill(0);
    let mut reached = [0; 2];
    while !count_pages(memory, starts, ends, page, &mut reached, whole, zero) {}
}

const LOOK: u64 = sized(1 << 12, 16) as u64; // bytes that a look for readable memory, and an interval, are the work of
const PATIENCE: u64 = sized(1 << 28, 64) as u64; // bytes of one call

/// Goes on with a [`page_census`], adding to its counts, for some 10^8 bytes; returns whether it has come to an end.
///
/// `reached` is the row and the address in it at which to go on; zeros at first.
pub fn count_pages(
    memory: &Spans,
    starts: &[u64],
    ends: &[u64],
    page: u64,
    reached: &mut [u64; 2],
    whole: &mut [u64],
    zero: &mut [u64],
) -> bool {
    let (mut hint, mut worked) = (0, 0);
    let mut row = usize::try_from(reached[0]).unwrap_or(usize::MAX);
    while row < starts.len() {
        let mut at = starts[row].max(reached[1]).checked_add(page - 1).map_or(u64::MAX, |up| up / page * page);
        while at < ends[row] && ends[row] - at >= page {
            if worked >= PATIENCE {
                *reached = [row as u64, at];
                return false;
            }
            let bytes = memory.from(at, &mut hint);
            if bytes.is_empty() {
                worked += LOOK;
                // on to the next span, at the page that begins in it
                match memory.next_start(at).and_then(|start| start.checked_add(page - 1)) {
                    Some(up) => at = up / page * page,
                    None => break,
                }
                continue;
            }
            if bytes.len() as u64 >= page {
                whole[row] += 1;
                zero[row] += u64::from(only_zeros(&bytes[..page as usize]));
            }
            worked = worked.saturating_add(page);
            at = match at.checked_add(page) {
                Some(at) => at,
                None => break,
            };
        }
        worked += LOOK;
        row += 1;
        *reached = [row as u64, 0];
    }
    true
}

fn only_zeros(bytes: &[u8]) -> bool {
    // Parts as wide as a cache line, each without a branch.
    bytes.chunks(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Span;

    #[test]
    fn rows_of_addresses() {
        let address: Vec<u64> = (0..1000).map(|row| 16 * row).collect();
        let wanted = [0, 16, 32, 15_984, 16_000, 8, 160, 15_984, 5];
        let mut rows = [9; 9];
        rows_of(&address, &wanted, &mut rows);
        assert_eq!(rows, [0, 1, 2, 999, -1, -1, 10, 999, -1]);
        rows_of(&[], &wanted, &mut rows);
        assert_eq!(rows, [-1; 9]);
    }

    #[test]
    fn values_by_category() {
        let mut category = [255; 256];
        category[1] = 0;
        category[2] = 1;
        let (mut found, mut counts) = ([0; 3], [0; 6]);
        let rows = count_values(&[9, 5, 5, 5, 7], &[1, 1, 2, 1, 0], &category, 2, &mut found, &mut counts);
        assert_eq!(rows, Ok(Some(2)));
        assert_eq!((found, counts), ([5, 9, 0], [2, 1, 1, 0, 0, 0]));
        let (mut found, mut counts) = ([0], [0; 2]);
        assert_eq!(count_values(&[5, 6], &[1, 1], &category, 2, &mut found, &mut counts), Ok(None));
        assert_eq!(count_values(&[5, 6], &[2, 1], &category, 1, &mut found, &mut counts), Ok(None));
    }

    #[test]
    fn regions_of_slabs() {
        let (mut address, mut free) = ([0; 70], [0; 70]);
        let bits = [0b101, 0, u64::MAX, 1];
        let count = slab_regions(&[0x1000, 0x2000], &[16, 8], &[4, 66], &bits, 2, &mut address, &mut free);
        assert_eq!(count, Some(70));
        assert_eq!((&address[..5], &free[..5]), (&[0x1000, 0x1010, 0x1020, 0x1030, 0x2000][..], &[1, 0, 1, 0, 1][..]));
        assert_eq!((address[69], free[68], free[69]), (0x2000 + 8 * 65, 1, 0));
        assert!(slab_regions(&[0], &[8], &[129], &bits, 2, &mut address, &mut free).is_none());
        assert!(slab_regions(&[0], &[8], &[71], &bits, 2, &mut address, &mut free).is_none());
        assert!(slab_regions(&[0, 0, 0], &[8; 3], &[1; 3], &bits, 2, &mut address, &mut free).is_none());
    }

    #[test]
    fn pages_of_intervals() {
        let mut bytes = [0; 64];
        bytes[20] = 1;
        let memory = Spans::new(vec![Span { start: 0x100, bytes: &bytes }, Span { start: 0x200, bytes: &bytes[..24] }]);
        let (mut whole, mut zero) = ([9; 3], [9; 3]);
        page_census(&memory.unwrap(), &[0x101, 0x100, 0], &[0x140, 0x300, u64::MAX], 16, &mut whole, &mut zero);
        assert_eq!((whole, zero), ([3, 5, 5], [2, 4, 4]));
    }
}
