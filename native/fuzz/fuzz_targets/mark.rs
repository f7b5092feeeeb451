//! What can be reached from roots: against a fixpoint that looks at every word until nothing changes.
#![no_main]

use gdbext_native::graph::{Job, MAYBE, NOT, REACHED};
use gdbext_native::scan::{Index, Pointers};
use gdbext_native_fuzz::{number, run, Blocks, Memory, Reader};
use libfuzzer_sys::fuzz_target;

fn model(memory: &Memory, blocks: &Blocks, pointers: Pointers, live: &[u8], roots: &[u8]) -> Vec<u8> {
    let word = pointers.words.size;
    let mut edges = Vec::new();
    for (start, bytes) in &memory.0 {
        for (at, content) in bytes.chunks_exact(word).enumerate() {
            let place = start + (at * word) as u64;
            let hit = blocks.follow(number(content, pointers.words), place, pointers);
            if let (Some(from), Some((to, interior))) = (blocks.find(place), hit) {
                let end = u128::from(blocks.address[from]) + u128::from(blocks.size[from]);
                if u128::from(place) + word as u128 <= end && live[to] != 0 {
                    edges.push((from, to, interior));
                }
            }
        }
    }
    let mut states: Vec<u8> =
        roots.iter().zip(live).map(|(&root, &live)| if live != 0 { root.min(REACHED) } else { NOT }).collect();
    loop {
        let before = states.clone();
        for &(from, to, interior) in &edges {
            states[to] = states[to].max(if interior { states[from].min(MAYBE) } else { states[from] });
        }
        if states == before {
            return states;
        }
    }
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
    let roots: Vec<u8> = (0..index.len()).map(|_| [0, 0, 0, 0, 1, 2, 2, 255][from.upto(7)]).collect();
    let memory = Memory::read(&mut from, base & !7, words, true);
    let spans = match memory.spans() {
        Some(spans) => spans,
        None => return,
    };
    let pointers = Pointers { words, clear, mangled, headers: from.headers(), part: from.upto(5) as u64 };
    let expected = model(&memory, &blocks, pointers, &live, &roots);
    for interrupted in [false, true] {
        let mut job = Job::new(&spans, &index, pointers, &live, &roots).unwrap();
        run(|deadline| job.run(deadline).unwrap(), interrupted);
        let mut states = vec![9; index.len()];
        job.write(&mut states);
        assert_eq!(states, expected, "interrupted: {interrupted}");
    }
    assert!(Job::new(&spans, &index, pointers, &[&live[..], &[1]].concat(), &roots).is_err());
});
