//! The C ABI, as `gdbext.kernels.native` calls it.
//!
//! Every function returns a number that is not negative, or one of the errors below; a panic becomes one of them. Lengths
//! are in items. What a pointer leads to must stay where it is, and unchanged, until the call returns, or for a job until
//! it is freed. Arrays may be null where their length is 0.

use std::cell::Cell;
use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::slice;
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::fallible::{kept, push, with_room, Error, Result};
use crate::memory::{Span, Spans, Words};
use crate::{chains, chunks, columns, graph, parallel, scalars, scan, tally};

/// What this library and `gdbext.kernels.native` must agree on.
pub const ABI: u32 = 11;

/// An argument that cannot be: a null pointer, a wrong length, spans or blocks that overlap.
pub const BAD_ARGUMENT: i64 = -1;
/// The answer does not fit what was given for it.
pub const NO_ROOM: i64 = -2;
/// A defect of this library.
pub const PANICKED: i64 = -3;

/// There is no memory for the work. A job that says so must be freed.
pub const OUT_OF_MEMORY: i64 = -4;

static QUIET: Once = Once::new();

thread_local! {
    static REFUSED: Cell<i64> = const { Cell::new(0) };
}

/// Runs a kernel; no panic leaves it.
pub(crate) fn guarded(kernel: impl FnOnce() -> Result<i64>) -> i64 {
    match caught(kernel) {
        Some(Ok(answer)) => answer,
        Some(Err(Error::BadArgument)) => BAD_ARGUMENT,
        Some(Err(Error::OutOfMemory)) => OUT_OF_MEMORY,
        None => PANICKED,
    }
}

/// Makes a job for the caller to keep, or null; then [`gx_refused`] has why.
pub(crate) fn started<T>(make: impl FnOnce() -> Result<T>) -> *mut T {
    let mut begun = std::ptr::null_mut();
    let status = guarded(|| {
        // As a box would be made, but that there may be no memory for one.
        begun = Box::into_raw(kept(make()?)?.into_boxed_slice()) as *mut T;
        Ok(0)
    });
    REFUSED.with(|refused| refused.set(status));
    begun
}

/// Returns why the last job that this thread wanted is null; 0 where it is not.
#[no_mangle]
pub extern "C" fn gx_refused() -> i64 {
    REFUSED.with(Cell::get)
}

pub(crate) fn given<T>(argument: Option<T>) -> Result<T> {
    argument.ok_or(Error::BadArgument)
}

fn number(given: u64) -> Result<usize> {
    usize::try_from(given).map_err(|_| Error::BadArgument)
}

#[allow(clippy::disallowed_methods)] // the box of what has no size takes no memory
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    // A panic is told by the error alone; this library's hook is not that of any other.
    QUIET.call_once(|| set_hook(Box::new(|_| {})));
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn fits<T>(start: *const T, length: u64) -> bool {
    let bytes = length.checked_mul(std::mem::size_of::<T>() as u64);
    let small = bytes.map_or(false, |bytes| bytes <= isize::MAX as u64);
    small && !start.is_null() && start as usize % std::mem::align_of::<T>() == 0
}

/// # Safety
/// `start` is null or leads to `length` items that live for `'a`.
pub(crate) unsafe fn read<'a, T>(start: *const T, length: u64) -> Result<&'a [T]> {
    match length {
        0 => Ok(&[]),
        _ if fits(start, length) => Ok(unsafe { slice::from_raw_parts(start, length as usize) }),
        _ => Err(Error::BadArgument),
    }
}

/// # Safety
/// As [`read`], and nothing else uses the items.
pub(crate) unsafe fn write<'a, T>(start: *mut T, length: u64) -> Result<&'a mut [T]> {
    match length {
        0 => Ok(&mut []),
        _ if fits(start, length) => Ok(unsafe { slice::from_raw_parts_mut(start, length as usize) }),
        _ => Err(Error::BadArgument),
    }
}

pub(crate) fn words(size: u32, swapped: u32) -> Result<Words> {
    match size {
        4 | 8 => Ok(Words { size: size as usize, swapped: swapped != 0 }),
        _ => Err(Error::BadArgument),
    }
}

/// Memory as it comes: `count` spans by first address, place and length, sorted and disjoint.
#[repr(C)]
pub struct Memory {
    pub starts: *const u64,
    pub places: *const u64,
    pub lengths: *const u64,
    pub count: u64,
}

impl Memory {
    /// # Safety
    /// The places lead to so many bytes, which live for `'a`.
    pub(crate) unsafe fn spans<'a>(&self) -> Result<Spans<'a>> {
        let (starts, places, lengths) = unsafe {
            (read(self.starts, self.count)?, read(self.places, self.count)?, read(self.lengths, self.count)?)
        };
        let mut spans = with_room(starts.len())?;
        for (at, &start) in starts.iter().enumerate() {
            let bytes = unsafe { read(places[at] as usize as *const u8, lengths[at])? };
            push(&mut spans, Span { start, bytes })?;
        }
        given(Spans::new(spans))
    }
}

/// [`chains::Rules`] as it comes.
#[repr(C)]
pub struct LinkRules {
    pub next: u64,
    pub mask: u64,
    pub relative: u64,
    pub end_bits: u64,
    pub leaf_bits: u64,
    pub alignment: u64,
    pub sentinels: *const u64,
    pub sentinel_count: u64,
    pub forbidden: *const u64,
    pub forbidden_count: u64,
    pub word: u32,
    pub swapped: u32,
    pub mangled: u32,
    pub unused: u32,
}

/// [`scan::Pointers`] as they come.
#[repr(C)]
pub struct PointerRules {
    pub clear: u64,
    pub headers: [u64; scan::HEADERS],
    pub word: u32,
    pub swapped: u32,
    pub mangled: u32,
    pub part: u32,
}

impl PointerRules {
    pub(crate) fn pointers(&self) -> Result<scan::Pointers> {
        let words = words(self.word, self.swapped)?;
        let (clear, headers, part) = (self.clear, self.headers, u64::from(self.part));
        Ok(scan::Pointers { words, clear, mangled: self.mangled != 0, headers, part })
    }
}

/// Chunks to be walked, and where their columns go.
#[repr(C)]
pub struct ChunkWalk {
    pub memory: *const u8,
    pub bytes: u64,
    pub origin: u64,
    pub start: u64,
    pub stop: u64,
    pub minimum: u64,
    pub granule: u64,
    pub word: u32,
    pub swapped: u32,
    pub room: u64,
    pub address: *mut u64,
    pub size: *mut u64,
    pub flags: *mut u8,
    pub free: *mut u8,
    pub mismatched: *mut u64,
    /// Told: how many of `mismatched` there are.
    pub mismatches: u64,
    /// Told: the word at which the walk ended.
    pub end: u64,
}

/// Blocks by address.
#[repr(C)]
pub struct Blocks {
    pub address: *const u64,
    pub size: *const u64,
    pub count: u64,
    /// Null, or a job of [`gx_index_new`] for the same arrays that is done, and freed after what is made with it: then the
    /// index is not built again.
    pub index: *const Job,
}

/// Returns [`ABI`]. Must be the first call.
#[no_mangle]
pub extern "C" fn gx_abi() -> u32 {
    parallel::cores();
    ABI
}

/// Sets how many threads work for this one; 0 takes as many as there are cores. Returns how many that are.
#[no_mangle]
pub extern "C" fn gx_threads(wanted: u32) -> u32 {
    parallel::set_threads(wanted as usize);
    parallel::threads() as u32
}

/// Walks chunks; see [`chunks::walk`]. Returns how many.
///
/// # Safety
/// `walk` and its arrays are as [`ChunkWalk`] says.
#[no_mangle]
pub unsafe extern "C" fn gx_walk_chunks(walk: *mut ChunkWalk) -> i64 {
    guarded(|| {
        let walk = unsafe { given(walk.as_mut())? };
        let memory = unsafe { read(walk.memory, walk.bytes)? };
        let columns = unsafe {
            chunks::Columns {
                address: write(walk.address, walk.room)?,
                size: write(walk.size, walk.room)?,
                flags: write(walk.flags, walk.room)?,
                free: write(walk.free, walk.room)?,
                mismatched: write(walk.mismatched, walk.room)?,
            }
        };
        let words = words(walk.word, walk.swapped)?;
        if !walk.granule.is_power_of_two() || walk.granule < words.size as u64 || walk.minimum < walk.granule {
            return Err(Error::BadArgument);
        }
        let rules = chunks::Rules { words, minimum: walk.minimum, granule: walk.granule };
        let (start, stop) = (number(walk.start)?, number(walk.stop)?);
        if start > memory.len() {
            return Err(Error::BadArgument);
        }
        let found = chunks::walk_with_reader(memory, walk.origin, start, stop, rules, columns)?;
        walk.mismatches = found.mismatches as u64;
        walk.end = found.end as u64;
        Ok(found.chunks as i64)
    })
}

/// Finds addresses in a sorted column; see [`columns::rows_of`].
///
/// # Safety
/// The arrays have the lengths that are given; `rows` has `wanted_count`.
#[no_mangle]
pub unsafe extern "C" fn gx_rows_of(
    address: *const u64,
    count: u64,
    wanted: *const u64,
    wanted_count: u64,
    rows: *mut i64,
) -> i64 {
    guarded(|| {
        let (address, wanted) = unsafe { (read(address, count)?, read(wanted, wanted_count)?) };
        columns::rows_of(address, wanted, unsafe { write(rows, wanted_count)? });
        Ok(0)
    })
}

/// Finds the blocks that addresses lie in; see [`scan::Index::find_all`].
///
/// # Safety
/// `blocks` is as its type says; `addresses` and `rows` have `count` items.
#[no_mangle]
pub unsafe extern "C" fn gx_find_blocks(
    blocks: *const Blocks,
    addresses: *const u64,
    count: u64,
    begins: u32,
    rows: *mut i64,
) -> i64 {
    guarded(|| {
        let (index, addresses) = unsafe { (block_index(blocks)?, read(addresses, count)?) };
        index.of.find_all(addresses, begins != 0, unsafe { write(rows, count)? });
        Ok(0)
    })
}

/// Reads numbers at many addresses; see [`scalars::gather`].
///
/// # Safety
/// `memory` is as its type says; `addresses`, `values` and `known` have `count` items.
#[no_mangle]
pub unsafe extern "C" fn gx_gather_scalars(
    memory: *const Memory,
    addresses: *const u64,
    count: u64,
    size: u32,
    swapped: u32,
    signed: u32,
    values: *mut u64,
    known: *mut u8,
) -> i64 {
    guarded(|| {
        let spans = unsafe { given(memory.as_ref())?.spans()? };
        let scalars = given(scalars::Scalars::new(size, swapped != 0, signed != 0))?;
        let (values, known) = unsafe { (write(values, count)?, write(known, count)?) };
        scalars::gather(&spans, unsafe { read(addresses, count)? }, scalars, values, known);
        Ok(0)
    })
}

/// Counts values by category; see [`columns::count_values`]. Returns how many values there are.
///
/// # Safety
/// `values` and `kinds` have `count` items, `category` 256, `found` `room`, `counts` `room * categories`.
#[no_mangle]
pub unsafe extern "C" fn gx_count_values(
    values: *const u64,
    kinds: *const u8,
    count: u64,
    category: *const u8,
    categories: u64,
    found: *mut u64,
    counts: *mut u64,
    room: u64,
) -> i64 {
    guarded(|| {
        let (values, kinds) = unsafe { (read(values, count)?, read(kinds, count)?) };
        let category: &[u8; 256] = given(unsafe { read(category, 256)? }.try_into().ok())?;
        let wide = given(room.checked_mul(categories))?;
        let (found, counts) = unsafe { (write(found, room)?, write(counts, wide)?) };
        let rows = columns::count_values(values, kinds, category, categories as usize, found, counts)?;
        Ok(rows.map_or(NO_ROOM, |rows| rows as i64))
    })
}

/// Lists the regions of slabs; see [`columns::slab_regions`]. Returns how many.
///
/// # Safety
/// `start`, `region` and `count` have `slabs` items, `bitmaps` `slabs * groups`, `address` and `free` `room`.
#[no_mangle]
pub unsafe extern "C" fn gx_slab_regions(
    start: *const u64,
    region: *const u64,
    count: *const u32,
    slabs: u64,
    bitmaps: *const u64,
    groups: u64,
    address: *mut u64,
    free: *mut u8,
    room: u64,
) -> i64 {
    guarded(|| {
        let (start, region, count) = unsafe { (read(start, slabs)?, read(region, slabs)?, read(count, slabs)?) };
        let bitmaps = unsafe { read(bitmaps, given(slabs.checked_mul(groups))?)? };
        let (address, free) = unsafe { (write(address, room)?, write(free, room)?) };
        let found = columns::slab_regions(start, region, count, bitmaps, groups as usize, address, free);
        Ok(found.map_or(NO_ROOM, |regions| regions as i64))
    })
}

/// Counts pages of intervals; see [`columns::count_pages`]. Returns 1 when it is done, 0 when there is more to do.
///
/// # Safety
/// `memory` is as [`Memory`] says; `reached` has two items, the other arrays `count`.
#[no_mangle]
pub unsafe extern "C" fn gx_page_census(
    memory: *const Memory,
    starts: *const u64,
    ends: *const u64,
    count: u64,
    page: u64,
    reached: *mut u64,
    whole: *mut u64,
    zero: *mut u64,
) -> i64 {
    guarded(|| {
        let memory = unsafe { given(memory.as_ref())?.spans()? };
        let (starts, ends) = unsafe { (read(starts, count)?, read(ends, count)?) };
        let (whole, zero) = unsafe { (write(whole, count)?, write(zero, count)?) };
        if page == 0 {
            return Err(Error::BadArgument);
        }
        let reached: &mut [u64; 2] = given(unsafe { write(reached, 2)? }.try_into().ok())?;
        let done = columns::count_pages(&memory, starts, ends, page, reached, whole, zero);
        Ok(i64::from(done))
    })
}

/// Work that is done in steps. What it refers to stands behind it, so that it goes first; each in a vector, as a box that
/// is moved says that nothing else refers to what it holds.
pub struct Job {
    work: Work,
    _index: Option<Indexed>,
    _rules: Vec<chains::Rules<'static>>,
    _memory: Vec<Spans<'static>>,
}

enum Work {
    Chains(chains::Job<'static>),
    Tally(tally::Job<'static>),
    Scan(scan::Job<'static>),
    Mark(graph::Job<'static>),
    Index(Building),
    /// Work that came to nothing.
    Failed(Error),
}

/// # Safety
/// The owner outlives every use of the reference.
pub(crate) unsafe fn outlasting<T>(owner: &T) -> &'static T {
    unsafe { &*(owner as *const T) }
}

/// Begins a walk along chains; see [`chains::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `memory`, `rules` and their arrays are as their types say; `firsts` has `count` items, as have `stops` and `most`
/// where they are not null.
#[no_mangle]
pub unsafe extern "C" fn gx_chains_new(
    memory: *const Memory,
    firsts: *const u64,
    count: u64,
    stops: *const u64,
    most: *const u64,
    total: u64,
    rules: *const LinkRules,
) -> *mut Job {
    started(|| {
        let memory = unsafe { kept(given(memory.as_ref())?.spans()?)? };
        let rules = unsafe { kept(link_rules(given(rules.as_ref())?)?)? };
        let firsts = unsafe { read(firsts, count)? };
        let stops = if stops.is_null() { None } else { Some(unsafe { read(stops, count)? }) };
        let most = if most.is_null() { None } else { Some(unsafe { read(most, count)? }) };
        let heads = chains::Heads { firsts, stops, most };
        let (spans, links) = unsafe { (outlasting(&memory[0]), outlasting(&rules[0])) };
        let work = Work::Chains(chains::Job::new(spans, heads, links, total)?);
        Ok(Job { work, _index: None, _rules: rules, _memory: memory })
    })
}

/// # Safety
/// The arrays live for `'a`.
unsafe fn link_rules<'a>(rules: &LinkRules) -> Result<chains::Rules<'a>> {
    if !rules.alignment.is_power_of_two() {
        return Err(Error::BadArgument);
    }
    Ok(chains::Rules {
        words: words(rules.word, rules.swapped)?,
        next: rules.next,
        mask: rules.mask,
        mangled: rules.mangled != 0,
        relative: rules.relative,
        end_bits: rules.end_bits,
        leaf_bits: rules.leaf_bits,
        alignment: rules.alignment,
        sentinels: unsafe { read(rules.sentinels, rules.sentinel_count)? },
        forbidden: unsafe { read(rules.forbidden, rules.forbidden_count)? },
    })
}

/// What [`gx_tally_new`] walks: heads at a fixed distance from each other.
#[repr(C)]
pub struct TallyHeads {
    pub firsts: *const u8,
    pub bytes: u64,
    pub count: u64,
    pub stride: u64,
    pub stop: u64,
    pub stop_step: u64,
    pub total: u64,
    pub word: u32,
    pub swapped: u32,
    pub stops: u32,
    pub unused: u32,
}

/// Begins to sum up chains; see [`tally::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `memory`, `heads`, `rules` and their arrays are as their types say; `firsts` has `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn gx_tally_new(
    memory: *const Memory,
    heads: *const TallyHeads,
    rules: *const LinkRules,
) -> *mut Job {
    started(|| {
        let memory = unsafe { kept(given(memory.as_ref())?.spans()?)? };
        let rules = unsafe { kept(link_rules(given(rules.as_ref())?)?)? };
        let of = unsafe { given(heads.as_ref())? };
        let firsts = unsafe { read(of.firsts, of.bytes)? };
        let column = tally::Column::new(firsts, number(of.count)?, number(of.stride)?, words(of.word, of.swapped)?);
        let stops = if of.stops == 0 { None } else { Some((of.stop, of.stop_step)) };
        let heads = tally::Heads { firsts: given(column)?, stops, total: of.total };
        let (spans, links) = unsafe { (outlasting(&memory[0]), outlasting(&rules[0])) };
        let work = Work::Tally(tally::Job::new(spans, heads, links)?);
        Ok(Job { work, _index: None, _rules: rules, _memory: memory })
    })
}

/// Writes what chains came to: nodes, chains that are not empty, the longest's nodes, which it is, chains that ended in
/// null, at their heads, at a sentinel. Returns 0 and writes nothing where a chain does not end
/// soundly or there are too many nodes, else 1. Only for a job that is done.
///
/// # Safety
/// As [`gx_job_run`]; `figures` has 7 places, `sample` as many as [`gx_job_found`] said.
#[no_mangle]
pub unsafe extern "C" fn gx_tally_write(job: *const Job, figures: *mut u64, sample: *mut u64) -> i64 {
    guarded(|| {
        let work = match unsafe { &given(job.as_ref())?.work } {
            Work::Tally(work) => work,
            _ => return Err(Error::BadArgument),
        };
        let found = match work.figures() {
            Some(found) => found,
            None => return Ok(0),
        };
        let [null, head, sentinel] = found.ends;
        let numbers = [found.nodes, found.nonempty, found.longest, found.at, null, head, sentinel];
        unsafe { write(figures, numbers.len() as u64)? }.copy_from_slice(&numbers);
        work.write_sample(unsafe { write(sample, work.sampled() as u64)? });
        Ok(1)
    })
}

/// Begins a scan for pointers into blocks; see [`scan::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `memory`, `blocks` and `rules` are as their types say; `wanted` is null or has a byte for each block.
#[no_mangle]
pub unsafe extern "C" fn gx_scan_new(
    memory: *const Memory,
    blocks: *const Blocks,
    wanted: *const u8,
    rules: *const PointerRules,
    most: u64,
) -> *mut Job {
    started(|| {
        let memory = unsafe { kept(given(memory.as_ref())?.spans()?)? };
        let index = unsafe { block_index(blocks)? };
        let wanted = if wanted.is_null() { None } else { Some(unsafe { read(wanted, index.of.len() as u64)? }) };
        let pointers = unsafe { given(rules.as_ref())?.pointers()? };
        let (spans, most) = unsafe { (outlasting(&memory[0]).all(), usize::try_from(most).unwrap_or(usize::MAX)) };
        let work = Work::Scan(scan::Job::new(spans, index.of, wanted, pointers, most)?);
        Ok(Job { work, _index: Some(index), _rules: Vec::new(), _memory: memory })
    })
}

/// Begins to build an index of blocks, for use by other jobs when it is done; see [`scan::Builder`]. Null when an
/// argument cannot be.
///
/// # Safety
/// `blocks` is as its type says.
#[no_mangle]
pub unsafe extern "C" fn gx_index_new(blocks: *const Blocks) -> *mut Job {
    started(|| {
        let blocks = unsafe { given(blocks.as_ref())? };
        let (address, size) = unsafe { (read(blocks.address, blocks.count)?, read(blocks.size, blocks.count)?) };
        let work = Work::Index(Building::Open(scan::Builder::new(address, size)?));
        Ok(Job { work, _index: None, _rules: Vec::new(), _memory: Vec::new() })
    })
}

enum Building {
    Open(scan::Builder<'static>),
    Done(Vec<scan::Index<'static>>),
}

impl Building {
    fn run(&mut self, deadline: Instant) -> Result<bool> {
        if let Building::Open(builder) = self {
            if !builder.run(deadline)? {
                return Ok(false);
            }
            *self = Building::Done(kept(builder.take_index())?);
        }
        Ok(true)
    }
}

/// The index of blocks: one that was made for this use, or that of another job, which outlives it.
pub(crate) struct Indexed {
    pub of: &'static scan::Index<'static>,
    _own: Vec<scan::Index<'static>>,
}

/// # Safety
/// `blocks` is as its type says, its arrays live as long as what is built on the index.
pub(crate) unsafe fn block_index(blocks: *const Blocks) -> Result<Indexed> {
    let blocks = unsafe { given(blocks.as_ref())? };
    let (address, size) = unsafe { (read(blocks.address, blocks.count)?, read(blocks.size, blocks.count)?) };
    let own = match unsafe { blocks.index.as_ref() } {
        None => kept(scan::Index::new(address, size)?)?,
        Some(Job { work: Work::Index(Building::Done(built)), .. }) if built[0].is_of(address, size) => {
            return Ok(Indexed { of: unsafe { outlasting(&built[0]) }, _own: Vec::new() });
        }
        Some(_) => return Err(Error::BadArgument),
    };
    Ok(Indexed { of: unsafe { outlasting(&own[0]) }, _own: own })
}

/// Begins a propagation from roots; see [`graph::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `memory`, `blocks` and `rules` are as their types say; `live` and `states` have a byte for each block.
#[no_mangle]
pub unsafe extern "C" fn gx_mark_new(
    memory: *const Memory,
    blocks: *const Blocks,
    live: *const u8,
    states: *const u8,
    rules: *const PointerRules,
) -> *mut Job {
    started(|| {
        let memory = unsafe { kept(given(memory.as_ref())?.spans()?)? };
        let index = unsafe { block_index(blocks)? };
        let count = index.of.len() as u64;
        let (live, states) = unsafe { (read(live, count)?, read(states, count)?) };
        let pointers = unsafe { given(rules.as_ref())?.pointers()? };
        let work = Work::Mark(graph::Job::new(unsafe { outlasting(&memory[0]) }, index.of, pointers, live, states)?);
        Ok(Job { work, _index: Some(index), _rules: Vec::new(), _memory: memory })
    })
}

/// Works for so many milliseconds. Returns 1 when the job is done, 0 when there is more to do.
///
/// # Safety
/// `job` is one that was begun and not freed.
#[no_mangle]
pub unsafe extern "C" fn gx_job_run(job: *mut Job, milliseconds: u32) -> i64 {
    guarded(|| {
        let deadline = Instant::now() + Duration::from_millis(milliseconds.into());
        let work = unsafe { &mut given(job.as_mut())?.work };
        let done = match work {
            Work::Chains(work) => work.run(deadline),
            Work::Tally(work) => work.run(deadline),
            Work::Scan(work) => work.run(deadline),
            Work::Mark(work) => work.run(deadline),
            Work::Index(work) => work.run(deadline),
            Work::Failed(error) => Err(*error),
        };
        if let Err(error) = done {
            *work = Work::Failed(error); // and what it held is given back
        }
        Ok(i64::from(done?))
    })
}

/// Returns how many nodes or words a job has found.
///
/// # Safety
/// As [`gx_job_run`].
#[no_mangle]
pub unsafe extern "C" fn gx_job_found(job: *const Job) -> i64 {
    guarded(|| {
        Ok(match unsafe { &given(job.as_ref())?.work } {
            Work::Chains(work) => work.nodes() as i64,
            Work::Tally(work) => work.sampled() as i64,
            Work::Scan(work) => work.hits() as i64,
            Work::Mark(_) | Work::Index(_) => 0,
            Work::Failed(error) => return Err(*error),
        })
    })
}

/// Writes what chains came to. Only for a job that is done.
///
/// # Safety
/// As [`gx_job_run`]; `nodes` has as many places as [`gx_job_found`] said, the others one for each chain. `ends`,
/// `last` and `cycles` hold zeros.
#[no_mangle]
pub unsafe extern "C" fn gx_chains_write(
    job: *const Job,
    count: u64,
    lengths: *mut u64,
    ends: *mut u8,
    last: *mut u64,
    cycles: *mut u64,
    nodes: *mut u64,
) -> i64 {
    guarded(|| {
        let work = match unsafe { &given(job.as_ref())?.work } {
            Work::Chains(work) => work,
            _ => return Err(Error::BadArgument),
        };
        if count != work.chains() as u64 {
            return Err(Error::BadArgument);
        }
        let (lengths, ends) = unsafe { (write(lengths, count)?, write(ends, count)?) };
        let (last, cycles) = unsafe { (write(last, count)?, write(cycles, count)?) };
        work.write(lengths, ends, last, cycles, unsafe { write(nodes, work.nodes() as u64)? });
        Ok(0)
    })
}

/// Writes what a scan found. Returns 1 when it had to leave words out, else 0.
///
/// # Safety
/// As [`gx_job_run`]; the arrays have as many places as [`gx_job_found`] said.
#[no_mangle]
pub unsafe extern "C" fn gx_scan_write(job: *const Job, places: *mut u64, rows: *mut u32, interior: *mut u8) -> i64 {
    guarded(|| {
        let work = match unsafe { &given(job.as_ref())?.work } {
            Work::Scan(work) => work,
            _ => return Err(Error::BadArgument),
        };
        let found = work.hits() as u64;
        unsafe { work.write(write(places, found)?, write(rows, found)?, write(interior, found)?) };
        Ok(i64::from(work.full()))
    })
}

/// Writes the state of every block.
///
/// # Safety
/// As [`gx_job_run`]; `states` has `count` places, one for each block.
#[no_mangle]
pub unsafe extern "C" fn gx_mark_write(job: *const Job, count: u64, states: *mut u8) -> i64 {
    guarded(|| match unsafe { &given(job.as_ref())?.work } {
        Work::Mark(work) if count == work.blocks() as u64 => {
            work.write(unsafe { write(states, count)? });
            Ok(0)
        }
        _ => Err(Error::BadArgument),
    })
}

/// Frees a job; null is none.
///
/// # Safety
/// `job` is null, or one that was begun and not freed.
#[no_mangle]
pub unsafe extern "C" fn gx_job_free(job: *mut Job) {
    if !job.is_null() {
        caught(|| drop(unsafe { Box::from_raw(job) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    /// Two spans of two words, the first words leading on.
    fn with_memory<T>(of: impl FnOnce(&Memory) -> T) -> T {
        let (low, high) = ([0x2000u64, 7], [0x1008u64, 0]);
        let (starts, lengths) = ([0x1000u64, 0x2000], [16u64, 16]);
        let places = [low.as_ptr() as usize as u64, high.as_ptr() as usize as u64];
        of(&Memory { starts: starts.as_ptr(), places: places.as_ptr(), lengths: lengths.as_ptr(), count: 2 })
    }

    fn link_rules() -> LinkRules {
        LinkRules {
            next: 0,
            mask: 0,
            relative: 0,
            end_bits: 0,
            leaf_bits: 0,
            alignment: 1,
            sentinels: null(),
            sentinel_count: 0,
            forbidden: null(),
            forbidden_count: 0,
            word: 8,
            swapped: 0,
            mangled: 0,
            unused: 0,
        }
    }

    #[test]
    fn a_walk_along_chains() {
        with_memory(|memory| unsafe {
            let firsts = [0x1000u64];
            let job = gx_chains_new(memory, firsts.as_ptr(), 1, null(), null(), u64::MAX, &link_rules());
            while gx_job_run(job, 0) == 0 {}
            assert_eq!(gx_job_found(job), 3);
            let (mut length, mut end, mut last, mut cycle, mut nodes) = ([0], [0], [0], [0], [0; 3]);
            let (lengths, ends, lasts) = (length.as_mut_ptr(), end.as_mut_ptr(), last.as_mut_ptr());
            let (cycles, all) = (cycle.as_mut_ptr(), nodes.as_mut_ptr());
            for wrong in [0, 2] {
                assert_eq!(gx_chains_write(job, wrong, lengths, ends, lasts, cycles, all), BAD_ARGUMENT);
            }
            assert_eq!(gx_chains_write(job, 1, lengths, ends, lasts, cycles, null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_scan_write(job, null_mut(), null_mut(), null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_chains_write(job, 1, lengths, ends, lasts, cycles, all), 0);
            gx_job_free(job);
            assert_eq!((length, end, last, nodes), ([3], [chains::End::Outside as u8], [7], [0x1000, 0x2000, 0x1008]));
        });
    }

    fn pointer_rules(word: u32) -> PointerRules {
        PointerRules { clear: 0, headers: [0; scan::HEADERS], word, swapped: 0, mangled: 0, part: 0 }
    }

    #[test]
    fn a_scan_and_a_propagation() {
        let (address, size) = ([0x1000u64, 0x2000], [16u64, 16]);
        let blocks = Blocks { address: address.as_ptr(), size: size.as_ptr(), count: 2, index: null() };
        with_memory(|memory| unsafe {
            let job = gx_scan_new(memory, &blocks, null(), &pointer_rules(8), 1 << 63);
            while gx_job_run(job, 0) == 0 {}
            let (mut places, mut rows, mut interior) = ([0; 2], [0; 2], [0; 2]);
            assert_eq!(gx_job_found(job), 2);
            assert_eq!(gx_scan_write(job, places.as_mut_ptr(), rows.as_mut_ptr(), interior.as_mut_ptr()), 0);
            assert_eq!((places, rows, interior), ([0x1000, 0x2000], [1, 0], [0, 1]));
            gx_job_free(job);

            let (live, states) = ([1u8, 1], [0u8, 2]);
            for (headers, state) in [([0; scan::HEADERS], graph::MAYBE), ([8, 1, 0, 0, 0, 0, 0, 0], graph::REACHED)] {
                let rules = PointerRules { headers, ..pointer_rules(8) };
                let job = gx_mark_new(memory, &blocks, live.as_ptr(), states.as_ptr(), &rules);
                while gx_job_run(job, 0) == 0 {}
                let mut states = [9; 2];
                assert_eq!(gx_mark_write(job, 1, states.as_mut_ptr()), BAD_ARGUMENT);
                assert_eq!(gx_mark_write(job, 2, states.as_mut_ptr()), 0);
                assert_eq!(states, [state, graph::REACHED]);
                gx_job_free(job);
            }
        });
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let missing = Memory { starts: null(), places: null(), lengths: null(), count: 1 };
        let blocks = Blocks { address: null(), size: null(), count: 0, index: null() };
        unsafe {
            assert!(gx_scan_new(&missing, &blocks, null(), &pointer_rules(8), 9).is_null());
            assert!(gx_scan_new(null(), &blocks, null(), &pointer_rules(8), 9).is_null());
            assert_eq!(gx_walk_chunks(null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_rows_of(null(), 0, null(), 1, null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_rows_of(null(), u64::MAX, null(), 0, null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_rows_of(null(), 0, null(), 0, null_mut()), 0);
            assert_eq!(gx_find_blocks(null(), null(), 0, 0, null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_find_blocks(&blocks, null(), 1, 0, null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_find_blocks(&blocks, &7, 1, 0, &mut 0), 0);
            assert_eq!(gx_gather_scalars(&missing, null(), 0, 8, 0, 0, null_mut(), null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_job_run(null_mut(), 0), BAD_ARGUMENT);
            assert_eq!(gx_job_found(null()), BAD_ARGUMENT);
            gx_job_free(null_mut());
        }
        with_memory(|memory| unsafe {
            assert_eq!(gx_gather_scalars(memory, null(), 0, 9, 0, 0, null_mut(), null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_gather_scalars(memory, null(), 1, 8, 0, 0, null_mut(), null_mut()), BAD_ARGUMENT);
            assert_eq!(gx_gather_scalars(memory, null(), 0, 8, 0, 0, null_mut(), null_mut()), 0);
            for word in [0, 2, 16] {
                assert!(gx_mark_new(memory, &blocks, null(), null(), &pointer_rules(word)).is_null());
            }
            assert!(gx_scan_new(memory, &blocks, null(), null(), 9).is_null());
            let unrun = gx_scan_new(memory, &blocks, null(), &pointer_rules(4), 0);
            gx_job_free(unrun);
        });
    }
}
