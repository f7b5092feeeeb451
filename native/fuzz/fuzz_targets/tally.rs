//! Sums over chains: against a walk node by node with a map of what was seen, and the same however often they are left.
#![no_main]

use std::collections::HashSet;

use gdbext_native::chains::Rules;
use gdbext_native::memory::Words;
use gdbext_native::tally::{Column, Figures, Heads, Job};
use gdbext_native_fuzz::{run, stored, Memory, Reader};
use libfuzzer_sys::fuzz_target;

/// What chains come to; none where one is not sound.
fn model(memory: &Memory, firsts: &[u64], stops: Option<(u64, u64)>, rules: &Rules) -> Option<Figures> {
    let mut sum = Figures::default();
    for (row, &first) in firsts.iter().enumerate() {
        let stop = stops.map(|(first, step)| first.wrapping_add(step.wrapping_mul(row as u64)));
        let (mut node, mut seen) = (first, HashSet::new());
        let end = loop {
            if node == 0 {
                break 0;
            } else if rules.forbidden.contains(&node) {
                return None;
            } else if node & rules.end_bits != 0 {
                break 2;
            } else if Some(node) == stop {
                break 1;
            } else if rules.sentinels.contains(&node) {
                break 2;
            } else if node & (rules.alignment - 1) != 0 || !seen.insert(node) {
                return None;
            }
            let link = memory.word(node.wrapping_add(rules.next), rules.words)?;
            node = link;
        };
        sum.ends[end] += 1;
        let length = seen.len() as u64;
        sum.nodes += length;
        sum.nonempty += u64::from(length > 0);
        if length > sum.longest {
            sum.longest = length;
            sum.at = row as u64;
        }
    }
    Some(sum)
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    from.threads();
    let (base, words) = (from.base(), from.words());
    let bits = from.byte();
    let sentinels: Vec<u64> = (0..from.upto(7) / 4).map(|_| from.near(base)).collect();
    let forbidden: Vec<u64> = (0..from.upto(7) / 4).map(|_| from.near(base)).collect();
    let rules = Rules {
        words,
        next: if bits & 1 == 0 { 0 } else { from.hostile() },
        mask: 0,
        relative: 0,
        end_bits: if bits & 2 == 0 { 0 } else { 1 },
        leaf_bits: 0,
        mangled: false,
        alignment: if bits & 4 == 0 { 1 } else { 1 << from.upto(63) },
        sentinels: &sentinels,
        forbidden: &forbidden,
    };
    let stops = if bits & 8 == 0 { None } else { Some((from.near(base), from.upto(64) as u64)) };
    let firsts: Vec<u64> = (0..from.upto(40)).map(|_| if from.one_in(2) { 0 } else { from.near(base) }).collect();
    let head_words = Words { size: 8, swapped: from.one_in(2) };
    let stride = 8 + from.upto(9);
    let mut bytes = vec![0xee; firsts.len() * stride];
    for (row, &first) in firsts.iter().enumerate() {
        bytes[row * stride..row * stride + 8].copy_from_slice(&stored(first, head_words));
    }
    let total = if from.one_in(2) { from.upto(150) as u64 } else { from.hostile() };
    let memory = Memory::read(&mut from, base, words, false);
    let spans = match memory.spans() {
        Some(spans) => spans,
        None => return,
    };
    let tallied = |interrupted| {
        let column = Column::new(&bytes, firsts.len(), stride, head_words).unwrap();
        let mut job = Job::new(&spans, Heads { firsts: column, stops, total }, &rules).unwrap();
        run(|deadline| job.run(deadline).unwrap(), interrupted);
        let mut sample = vec![0; job.sampled()];
        job.write_sample(&mut sample);
        job.figures()
    };
    let found = tallied(false);
    assert_eq!(found, tallied(true), "left and taken up again");
    let expected = model(&memory, &firsts, stops, &rules);
    assert_eq!(found, expected.filter(|sum| sum.nodes <= total.min(1 << 31)));
});
