//! The walk along chunks: against a plain one, and the same in one go and chunk by chunk.
#![no_main]

use gdbext_native::chunks::{walk, Columns, Rules, Walk};
use gdbext_native_fuzz::{number, stored, Reader};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Default, PartialEq)]
struct Found {
    address: Vec<u64>,
    size: Vec<u64>,
    flags: Vec<u8>,
    free: Vec<u8>,
    mismatched: Vec<u64>,
    end: usize,
}

struct Case {
    memory: Vec<u8>,
    origin: u64,
    stop: usize,
    rules: Rules,
}

impl Case {
    fn kernel(&self, start: usize, room: usize) -> Found {
        let (mut address, mut size, mut mismatched) = (vec![0; room], vec![0; room], vec![0; room]);
        let (mut flags, mut free) = (vec![0; room], vec![0; room]);
        let mut columns = Columns {
            address: &mut address,
            size: &mut size,
            flags: &mut flags,
            free: &mut free,
            mismatched: &mut mismatched,
        };
        let Walk { chunks, mismatches, end } =
            walk(&self.memory, self.origin, start, self.stop, self.rules, &mut columns);
        address.truncate(chunks);
        size.truncate(chunks);
        flags.truncate(chunks);
        free.truncate(chunks);
        mismatched.truncate(mismatches);
        Found { address, size, flags, free, mismatched, end }
    }

    fn word(&self, at: u128) -> Option<u64> {
        let words = self.rules.words;
        let bytes = self.memory.chunks_exact(words.size).nth(usize::try_from(at).ok()?)?;
        Some(number(bytes, words))
    }

    fn model(&self, start: usize, room: usize) -> Found {
        let word = self.rules.words.size as u128;
        let stop = (self.stop as u128).min(self.memory.len() as u128 / word);
        let (mut at, mut found) = (start as u128, Found::default());
        while found.address.len() < room && at + 2 <= stop {
            let head = self.word(at + 1).unwrap();
            let size = head & !7;
            let fits = at * word + u128::from(size) <= stop * word;
            if size < self.rules.minimum || size % self.rules.granule != 0 || !fits {
                break;
            }
            found.address.push(self.origin.wrapping_add(at as u64 * word as u64));
            found.size.push(size);
            found.flags.push((head & 7) as u8);
            at += u128::from(size) / word;
            // of the chunk just passed, from what lies behind it
            let free = self.word(at + 1).map_or(false, |head| head & 1 == 0);
            found.free.push(u8::from(free));
            if free && self.word(at).map_or(false, |again| again != size) {
                found.mismatched.push(found.size.len() as u64 - 1);
            }
        }
        found.end = at as usize;
        found
    }
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let words = from.words();
    let granule = if from.one_in(4) { 1 << (2 + from.upto(60)) } else { 2 * words.size as u64 };
    let granule = granule.max(words.size as u64);
    let minimum = if from.one_in(4) { from.hostile().max(granule) } else { 2 * granule };
    let origin = from.hostile();
    let start = if from.one_in(8) { from.hostile() as usize } else { from.upto(5) };
    let stop = if from.one_in(2) { from.hostile() as usize } else { from.upto(255) };
    let room = from.upto(40);
    let mut memory = Vec::new();
    while !from.0.is_empty() {
        let byte = from.byte();
        let size = u64::from(byte >> 3 & 7) * 2 * words.size as u64;
        match byte >> 6 {
            0 | 1 => {
                memory.extend(stored(size, words));
                memory.extend(stored(size | u64::from(byte & 7), words));
                memory.resize(memory.len() + (size as usize).saturating_sub(2 * words.size), 0);
            }
            2 => memory.extend(stored(from.hostile(), words)),
            _ => memory.push(byte),
        }
    }
    let case = Case { memory, origin, stop, rules: Rules { words, minimum, granule } };
    let found = case.kernel(start, room);
    assert_eq!(found, case.model(start, room));
    let (mut pieces, mut at) = (Found { end: start, ..Found::default() }, start);
    for row in 0..found.size.len() as u64 {
        let one = case.kernel(at, 1);
        at = one.end;
        pieces.address.extend(one.address);
        pieces.size.extend(one.size);
        pieces.flags.extend(one.flags);
        pieces.free.extend(one.free);
        pieces.mismatched.extend(one.mismatched.iter().map(|_| row));
        pieces.end = at;
    }
    assert_eq!(found, pieces);
});
