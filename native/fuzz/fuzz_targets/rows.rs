//! Rows of addresses in a column: against a search from the first on.
#![no_main]

use gdbext_native::columns::rows_of;
use gdbext_native_fuzz::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let (count, sorted) = (from.upto(120), !from.one_in(8));
    let base = from.base();
    let mut address: Vec<u64> = (0..count).map(|_| from.near(base)).collect();
    if sorted {
        address.sort_unstable();
    }
    let mut wanted = Vec::new();
    while !from.0.is_empty() {
        wanted.push(from.near(base));
    }
    let mut rows = vec![7; wanted.len()];
    rows_of(&address, &wanted, &mut rows);
    for (value, row) in wanted.iter().zip(rows) {
        if sorted {
            assert_eq!(row, address.iter().position(|one| one == value).map_or(-1, |row| row as i64));
        } else {
            assert!(row == -1 || address[row as usize] == *value);
        }
    }
});
