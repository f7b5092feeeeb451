//! Words that point into blocks: against each word held to each block.
#![no_main]

use gdbext_native::scan::{Index, Job, Pointers, PIECE};
use gdbext_native_fuzz::{number, run, Blocks, Memory, Reader};
use libfuzzer_sys::fuzz_target;

type Found = (Vec<u64>, Vec<u32>, Vec<u8>, bool);

fn model(memory: &Memory, blocks: &Blocks, wanted: Option<&[u8]>, pointers: Pointers, most: usize) -> Found {
    let (mut found, word) = (Found::default(), pointers.words.size);
    for (start, bytes) in &memory.0 {
        let skipped = (0..word).find(|&at| start.wrapping_add(at as u64) % word as u64 == 0).unwrap();
        let (mut piece, mut kept) = (0, 0);
        for at in (skipped..bytes.len()).step_by(word).filter(|at| at + word <= bytes.len()) {
            if (at - skipped) / PIECE != piece {
                (piece, kept) = ((at - skipped) / PIECE, 0);
            }
            let (stored, place) = (number(&bytes[at..at + word], pointers.words), start.wrapping_add(at as u64));
            let hit = blocks.follow(stored, place, pointers);
            if let Some((row, interior)) = hit.filter(|&(row, _)| wanted.map_or(true, |wanted| wanted[row] != 0)) {
                if kept == most {
                    found.3 = true;
                    continue;
                }
                kept += 1;
                found.0.push(place);
                found.1.push(row as u32);
                found.2.push(u8::from(interior));
            }
        }
    }
    found
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    from.threads();
    let (base, words) = (from.base(), from.words());
    let (clear, mangled) = (if from.one_in(4) { from.hostile() } else { 0 }, from.one_in(4));
    let most = if from.one_in(4) { from.upto(3) } else { usize::MAX };
    let blocks = Blocks::read(&mut from, base);
    let index = Index::new(&blocks.address, &blocks.size);
    assert_eq!(index.is_ok(), blocks.sound());
    let index = match index {
        Ok(index) => index,
        Err(_) => return,
    };
    let mut hint = from.upto(3);
    for row in 0..index.len() {
        let last = (blocks.end(row) - 1) as u64;
        for at in [blocks.address[row], last, last / 2 + blocks.address[row] / 2, last.wrapping_add(1), from.near(base)]
        {
            let found = index.find(at, &mut hint);
            assert_eq!(found.map(|hit| hit.row), blocks.find(at), "{at:#x}");
            assert!(found.map_or(true, |hit| hit.interior == (at != blocks.address[hit.row])));
        }
    }
    let places: Vec<u64> = (0..from.upto(70)).map(|_| from.near(base)).chain(blocks.address.iter().copied()).collect();
    for begins in [false, true] {
        let mut rows = vec![7; places.len()];
        index.find_all(&places, begins, &mut rows);
        for (&at, row) in places.iter().zip(rows) {
            let held = blocks.find(at).filter(|&row| !begins || blocks.address[row] == at);
            assert_eq!(row, held.map_or(-1, |row| row as i64), "{at:#x}");
        }
    }
    let wanted: Vec<u8> = (0..index.len()).map(|_| from.byte() & 1).collect();
    let wanted = if from.one_in(2) { Some(&wanted[..]) } else { None };
    let memory = Memory::read(&mut from, base, words, false);
    let spans = match memory.spans() {
        Some(spans) => spans,
        None => return,
    };
    let pointers = Pointers { words, clear, mangled, headers: from.headers(), part: from.upto(5) as u64 };
    let expected = model(&memory, &blocks, wanted, pointers, most);
    for interrupted in [false, true] {
        let mut job = Job::new(spans.all(), &index, wanted, pointers, most).unwrap();
        run(|deadline| job.run(deadline).unwrap(), interrupted);
        let count = job.hits();
        let (mut places, mut rows, mut interior) = (vec![0; count], vec![0; count], vec![0; count]);
        job.write(&mut places, &mut rows, &mut interior);
        assert_eq!((places, rows, interior, job.full()), expected, "interrupted: {interrupted}");
    }
});
