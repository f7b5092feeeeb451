//! Edges: against every word of every block looked up block by block.
#![no_main]

use std::collections::BTreeMap;

use gdbext_native::edges::Job;
use gdbext_native::scan::{Index, Pointers};
use gdbext_native_fuzz::{number, run, Blocks, Memory, Reader};
use libfuzzer_sys::fuzz_target;

/// The targets of each row and whether into the middle, in the order of the words that stand for them.
fn model(memory: &Memory, blocks: &Blocks, pointers: Pointers, live: &[u8]) -> Vec<Vec<(u32, u8)>> {
    let word = pointers.words.size;
    let mut edges = vec![BTreeMap::new(); live.len()];
    for (start, bytes) in &memory.0 {
        for (at, content) in bytes.chunks_exact(word).enumerate() {
            let place = start + (at * word) as u64;
            let hit = blocks.follow(number(content, pointers.words), place, pointers);
            if let (Some(from), Some((to, interior))) = (blocks.find(place), hit) {
                let end = u128::from(blocks.address[from]) + u128::from(blocks.size[from]);
                if u128::from(place) + word as u128 <= end && live[from] & live[to] != 0 && from != to {
                    let new = (u8::from(interior), place);
                    let best = edges[from].entry(to as u32).or_insert(new);
                    *best = new.min(*best);
                }
            }
        }
    }
    let in_order = |row: BTreeMap<u32, (u8, u64)>| {
        let mut row: Vec<_> = row.into_iter().map(|(to, (interior, place))| (place, to, interior)).collect();
        row.sort_unstable();
        row.into_iter().map(|(_, to, interior)| (to, interior)).collect()
    };
    edges.into_iter().map(in_order).collect()
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    from.threads();
    let (base, words) = (from.base(), from.words());
    let (clear, mangled) = (if from.one_in(4) { from.hostile() } else { 0 }, from.one_in(4));
    let blocks = Blocks::read(&mut from, base);
    let index = match Index::new(&blocks.address, &blocks.size) {
        Ok(index) => index,
        Err(_) => return,
    };
    let live: Vec<u8> = (0..index.len()).map(|_| u8::from(!from.one_in(6))).collect();
    let memory = Memory::read(&mut from, base & !7, words, true);
    let spans = match memory.spans() {
        Some(spans) => spans,
        None => return,
    };
    let pointers = Pointers { words, clear, mangled, headers: from.headers(), part: from.upto(5) as u64 };
    let expected = model(&memory, &blocks, pointers, &live);
    let total: usize = expected.iter().map(Vec::len).sum();
    for (interrupted, most) in [(false, total), (true, total), (true, total.wrapping_sub(1))] {
        let mut job = Job::new(&spans, &index, pointers, &live, most as u64).unwrap();
        run(|deadline| job.run(deadline).unwrap(), interrupted);
        assert_eq!(job.full(), most < total, "interrupted: {interrupted}");
        if job.full() {
            continue;
        }
        let mut first = vec![9; index.len() + 1];
        let (mut to, mut interior) = (vec![9; job.edges()], vec![9; job.edges()]);
        job.write(&mut first, &mut to, &mut interior);
        let row = |row: usize| {
            let edges = first[row] as usize..first[row + 1] as usize;
            edges.map(|at| (to[at], interior[at])).collect::<Vec<_>>()
        };
        assert_eq!((0..index.len()).map(row).collect::<Vec<_>>(), expected, "interrupted: {interrupted}");
    }
});
