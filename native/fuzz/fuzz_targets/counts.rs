//! Counts of values by category: against a map of maps.
#![no_main]

use std::collections::BTreeMap;

use gdbext_native::columns::count_values;
use gdbext_native_fuzz::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let (categories, most) = (from.upto(5), if from.one_in(2) { usize::MAX } else { from.upto(20) });
    let mut category = [u8::MAX; 256];
    for kind in 0..8 {
        category[kind] = if from.one_in(16) { from.byte() } else { (kind % categories.max(1)) as u8 };
    }
    let (mut values, mut kinds) = (Vec::new(), Vec::new());
    while !from.0.is_empty() {
        let byte = from.byte();
        kinds.push(if byte & 15 == 15 { from.byte() } else { byte & 7 });
        values.push(if byte >> 4 == 15 { from.hostile() } else { u64::from(byte >> 4) });
    }
    let mut expected: Option<BTreeMap<u64, Vec<u64>>> = Some(BTreeMap::new());
    for (value, kind) in values.iter().zip(&kinds) {
        let which = category[usize::from(*kind)];
        if let (Some(counts), true) = (&mut expected, which != u8::MAX) {
            match counts.entry(*value).or_insert_with(|| vec![0; categories]).get_mut(usize::from(which)) {
                Some(count) => *count += 1,
                None => expected = None,
            }
        }
        if expected.as_ref().map_or(false, |counts| counts.len() > most) {
            expected = None;
        }
    }
    let expected = expected.map(|counts| counts.into_iter().collect::<Vec<_>>());
    let room = most.min(values.len());
    let (mut found, mut counts) = (vec![0; room], vec![0; room * categories]);
    let rows = count_values(&values, &kinds, &category, categories, &mut found, &mut counts).unwrap();
    let row = |row: usize| (found[row], counts[row * categories..(row + 1) * categories].to_vec());
    assert_eq!(rows.map(|rows| (0..rows).map(row).collect::<Vec<_>>()), expected);
});
