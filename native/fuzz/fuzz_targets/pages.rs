//! Pages of intervals: against each span by itself.
#![no_main]

use gdbext_native::columns::page_census;
use gdbext_native_fuzz::{Memory, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let (base, words) = (from.base(), from.words());
    let page = if from.one_in(4) { from.hostile().max(1) } else { [1, 4, 8, 16, 64, 3][from.upto(5)] };
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..from.upto(4) {
        let start = from.near(base);
        starts.push(start);
        ends.push(if from.one_in(2) { start.saturating_add(u64::from(from.byte())) } else { from.hostile() });
    }
    let mut memory = Memory::read(&mut from, base, words, false);
    for (_, bytes) in &mut memory.0 {
        if from.one_in(3) {
            bytes.fill(0);
        }
    }
    let spans = match memory.spans() {
        Some(spans) => spans,
        None => return,
    };
    let (mut whole, mut zero) = (vec![9; starts.len()], vec![9; starts.len()]);
    page_census(&spans, &starts, &ends, page, &mut whole, &mut zero);
    for row in 0..starts.len() {
        let (mut readable, mut empty) = (0, 0);
        for (base, bytes) in &memory.0 {
            let (wide, base) = (u128::from(page), u128::from(*base));
            let mut at = (u128::from(starts[row]).max(base) + wide - 1) / wide * wide;
            while at + wide <= u128::from(ends[row]).min(base + bytes.len() as u128) {
                readable += 1;
                let content = &bytes[(at - base) as usize..][..page as usize];
                empty += u64::from(content.iter().all(|&byte| byte == 0));
                at += wide;
            }
        }
        assert_eq!((whole[row], zero[row]), (readable, empty), "interval {row}");
    }
});
