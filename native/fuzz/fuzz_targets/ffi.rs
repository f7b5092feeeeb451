//! The C ABI: null pointers with and without lengths, lengths of nothing, wrong calls, jobs freed early. What is not null
//! leads to what its length says: all else no library can tell.
#![no_main]

use std::ptr::{null, null_mut};

use gdbext_native::ffi::*;
use gdbext_native_fuzz::{Blocks as Rows, Memory as Stretches, Reader};
use libfuzzer_sys::fuzz_target;

/// An array as C takes it: null now and then, out of alignment now and then, and never longer than it says.
struct Array<T>(Vec<T>);

impl<T: Copy + Default> Array<T> {
    fn of(count: usize) -> Self {
        Array(vec![T::default(); count])
    }

    fn place(&self, from: &mut Reader) -> *const T {
        match from.byte() {
            0..=9 => null(),
            10 if std::mem::size_of::<T>() > 1 => (self.0.as_ptr() as usize + 1) as *const T, // must not be read
            _ => self.0.as_ptr(),
        }
    }

    fn room(&mut self, from: &mut Reader) -> *mut T {
        if from.byte() < 10 {
            null_mut()
        } else {
            self.0.as_mut_ptr()
        }
    }
}

/// Where the bytes of a stretch are told to be: now and then nowhere.
fn told_place(bytes: &[u8], from: &mut Reader) -> u64 {
    if from.byte() < 5 {
        0
    } else {
        bytes.as_ptr() as u64
    }
}

fn checked(answer: i64) -> i64 {
    assert!(answer >= NO_ROOM, "answered {answer}");
    answer
}

fn count(from: &mut Reader, sound: usize) -> u64 {
    if from.one_in(16) {
        from.upto(sound.min(255) as u8) as u64
    } else {
        sound as u64
    }
}

/// Uses a job in any order, right or wrong.
unsafe fn used(job: *mut Job, chains: usize, blocks: usize, from: &mut Reader) {
    for _ in 0..from.upto(9) {
        match from.upto(9) {
            0..=2 => {
                let done = checked(gx_job_run(job, if from.one_in(8) { 1000 } else { 0 }));
                assert!(done == BAD_ARGUMENT && job.is_null() || done == 0 || done == 1);
            }
            3 => {
                checked(gx_job_found(job));
            }
            4 | 5 => {
                let rows = if from.one_in(4) { from.upto(30) } else { chains };
                let (mut lengths, mut last, mut cycles) = (Array::of(rows), Array::of(rows), Array::of(rows));
                let (mut ends, mut nodes) = (Array::of(rows), Array::of(gx_job_found(job).max(0) as usize));
                let columns = (lengths.room(from), ends.room(from), last.room(from), cycles.room(from));
                let (lengths, ends, last, cycles) = columns;
                checked(gx_chains_write(job, rows as u64, lengths, ends, last, cycles, nodes.room(from)));
            }
            6 | 7 => {
                let found = gx_job_found(job).max(0) as usize;
                let (mut places, mut rows, mut interior) = (Array::of(found), Array::of(found), Array::of(found));
                checked(gx_scan_write(job, places.room(from), rows.room(from), interior.room(from)));
            }
            _ => {
                let rows = if from.one_in(4) { from.upto(30) } else { blocks };
                checked(gx_mark_write(job, rows as u64, Array::of(rows).room(from)));
            }
        }
    }
    gx_job_free(job);
}

fn pointer_rules(from: &mut Reader, word: u32, swapped: u32, clear: u64) -> PointerRules {
    PointerRules {
        clear,
        headers: from.headers(),
        word,
        swapped,
        mangled: from.upto(1) as u32,
        part: from.upto(5) as u32,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let from = &mut from;
    gx_abi();
    gx_threads(1);
    let (base, words) = (from.base(), from.words());
    let which = from.upto(8);
    let size = if from.one_in(16) { from.hostile() as u32 } else { words.size as u32 };
    let swapped = u32::from(words.swapped);
    let stretches = Stretches::read(from, base, words, false);
    let starts = Array(stretches.0.iter().map(|(start, _)| *start).collect());
    let places: Array<u64> = Array(stretches.0.iter().map(|(_, bytes)| told_place(bytes, from)).collect());
    let lengths: Array<u64> = Array(stretches.0.iter().map(|(_, bytes)| bytes.len() as u64).collect());
    let memory = Memory {
        starts: starts.place(from),
        places: places.place(from),
        lengths: lengths.place(from),
        count: count(from, stretches.0.len()),
    };
    let memory = if from.one_in(32) { null() } else { &memory as *const Memory };
    let rows = Rows::read(from, base);
    let (address, bytes) = (Array(rows.address.clone()), Array(rows.size.clone()));
    let blocks =
        Blocks { address: address.place(from), size: bytes.place(from), count: address.0.len() as u64, index: null() };
    let number = address.0.len();
    let blocks = if from.one_in(32) { null() } else { &blocks as *const Blocks };
    unsafe {
        match which {
            0 => {
                let firsts = Array((0..from.upto(20)).map(|_| from.near(base)).collect());
                let (sentinels, forbidden) = (Array(vec![from.near(base)]), Array(vec![from.near(base)]));
                let rules = LinkRules {
                    next: if from.one_in(4) { from.hostile() } else { 0 },
                    mask: if from.one_in(4) { from.hostile() } else { 0 },
                    relative: if from.one_in(4) { from.hostile() } else { 0 },
                    end_bits: if from.one_in(4) { from.hostile() } else { 0 },
                    leaf_bits: if from.one_in(4) { from.hostile() } else { 0 },
                    alignment: if from.one_in(4) { from.hostile() } else { 1 },
                    sentinels: sentinels.place(from),
                    sentinel_count: from.upto(1) as u64,
                    forbidden: forbidden.place(from),
                    forbidden_count: from.upto(1) as u64,
                    word: size,
                    swapped,
                    mangled: from.upto(1) as u32,
                    unused: 0,
                };
                let chains = firsts.0.len();
                let (stops, most) = (Array(firsts.0.clone()), Array(firsts.0.clone()));
                let total = if from.one_in(2) { from.upto(100) as u64 } else { from.hostile() };
                let rules = if from.one_in(32) { null() } else { &rules as *const LinkRules };
                let (first, stop) = (firsts.place(from), if from.one_in(2) { stops.place(from) } else { null() });
                let most = if from.one_in(2) { most.place(from) } else { null() };
                used(gx_chains_new(memory, first, chains as u64, stop, most, total, rules), chains, number, from);
            }
            1 => {
                let wanted = Array((0..number).map(|_| from.byte() & 1).collect());
                let (clear, most) = (if from.one_in(4) { from.hostile() } else { 0 }, from.hostile());
                let rules = pointer_rules(from, size, swapped, clear);
                let rules = if from.one_in(32) { null() } else { &rules as *const PointerRules };
                let job = gx_scan_new(memory, blocks, wanted.place(from), rules, most);
                used(job, from.upto(9), number, from);
            }
            2 => {
                let live = Array((0..number).map(|_| u8::from(!from.one_in(4))).collect());
                let states = Array((0..number).map(|_| from.byte()).collect());
                let clear = if from.one_in(4) { from.hostile() } else { 0 };
                let rules = pointer_rules(from, size, swapped, clear);
                let (live, states) = (live.place(from), states.place(from));
                let job = gx_mark_new(memory, blocks, live, states, &rules);
                used(job, from.upto(9), number, from);
            }
            3 => {
                let content: Array<u8> = Array((0..from.upto(200)).map(|_| from.byte()).collect());
                let room = from.upto(20);
                let (mut address, mut sizes, mut mismatched) = (Array::of(room), Array::of(room), Array::of(room));
                let (mut flags, mut free) = (Array::of(room), Array::of(room));
                let mut walk = ChunkWalk {
                    memory: content.place(from),
                    bytes: count(from, content.0.len()),
                    origin: from.hostile(),
                    start: if from.one_in(4) { from.hostile() } else { 0 },
                    stop: from.hostile(),
                    minimum: if from.one_in(4) { from.hostile() } else { 32 },
                    granule: if from.one_in(4) { from.hostile() } else { 16 },
                    word: size,
                    swapped,
                    room: room as u64,
                    address: address.room(from),
                    size: sizes.room(from),
                    flags: flags.room(from),
                    free: free.room(from),
                    mismatched: mismatched.room(from),
                    mismatches: 0,
                    end: 0,
                };
                checked(gx_walk_chunks(if from.one_in(32) { null_mut() } else { &mut walk }));
            }
            4 => {
                let wanted = Array((0..from.upto(50)).map(|_| from.near(base)).collect());
                let mut found = Array::of(wanted.0.len());
                let (address, wanted, length) = (address.place(from), wanted.place(from), wanted.0.len() as u64);
                checked(gx_rows_of(address, number as u64, wanted, length, found.room(from)));
            }
            5 => {
                let kinds = Array((0..number).map(|_| from.byte()).collect());
                let category: Array<u8> = Array((0..256).map(|kind| (kind % 3) as u8).collect());
                // The product must be what there is room for; a number of categories alone may be anything.
                let room = from.upto(9);
                let categories = if room == 0 { from.hostile() } else { from.upto(4) as u64 };
                let wide = (room as u64).saturating_mul(categories) as usize;
                let (mut found, mut counts) = (Array::of(room), Array::of(wide));
                let (values, kinds, category) = (address.place(from), kinds.place(from), category.place(from));
                let (found, counts) = (found.room(from), counts.room(from));
                let number = number as u64;
                checked(gx_count_values(values, kinds, number, category, categories, found, counts, room as u64));
            }
            6 => {
                let slabs = from.upto(5);
                let groups = if slabs == 0 { from.hostile() } else { from.upto(3) as u64 };
                let many = (slabs as u64).saturating_mul(groups) as usize;
                let (start, region): (Array<u64>, Array<u64>) = (Array::of(slabs), Array::of(slabs));
                let counts =
                    Array((0..slabs).map(|_| if from.one_in(8) { u32::MAX } else { from.upto(70) as u32 }).collect());
                let (bitmaps, room): (Array<u64>, _) = (Array::of(many), from.upto(200));
                let (mut found, mut free) = (Array::of(room), Array::of(room));
                let columns = (start.place(from), region.place(from), counts.place(from), bitmaps.place(from));
                let (start, region, counts, bitmaps) = columns;
                let (found, free) = (found.room(from), free.room(from));
                let (slabs, room) = (slabs as u64, room as u64);
                checked(gx_slab_regions(start, region, counts, slabs, bitmaps, groups, found, free, room));
            }
            7 => {
                let intervals = from.upto(5);
                let begins = Array((0..intervals).map(|_| from.near(base)).collect());
                let ends = Array((0..intervals).map(|_| from.near(base)).collect());
                let (mut whole, mut zero) = (Array::of(intervals), Array::of(intervals));
                let mut reached = Array::of(2);
                let page = from.hostile();
                let (begins, ends) = (begins.place(from), ends.place(from));
                let (reached, whole, zero) = (reached.room(from), whole.room(from), zero.room(from));
                checked(gx_page_census(memory, begins, ends, intervals as u64, page, reached, whole, zero));
            }
            _ => used(null_mut(), from.upto(9), number, from),
        }
    }
});
