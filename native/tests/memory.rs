//! Every kernel where there is no memory: it says so, whichever allocation fails, and the process goes on.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gdbext_native::ffi::*;
use gdbext_native::ffi_graph::*;

const NEVER: usize = usize::MAX;
static ARMED: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// While a kernel works, this allocation and every so many behind it fail.
static FIRST: AtomicUsize = AtomicUsize::new(NEVER);
static EVERY: AtomicUsize = AtomicUsize::new(NEVER);

struct Failing;

extern "C" {
    fn getpid() -> i32;
    fn gettid() -> i32;
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The first thread is that of the tests, which only waits, but takes memory too.
        if ARMED.load(Ordering::SeqCst) && getpid() != gettid() {
            let number = ASKED.fetch_add(1, Ordering::SeqCst);
            let behind = number.checked_sub(FIRST.load(Ordering::SeqCst));
            if behind.map_or(false, |behind| behind % EVERY.load(Ordering::SeqCst) == 0) {
                return null_mut();
            }
        }
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        System.dealloc(place, layout)
    }
}

/// Runs what belongs to the library; memory of this test itself never fails.
fn armed<T>(call: impl FnOnce() -> T) -> T {
    ARMED.store(true, Ordering::SeqCst);
    let answer = call();
    ARMED.store(false, Ordering::SeqCst);
    answer
}

type Answer = Result<Vec<u64>, i64>;

fn told(answer: i64) -> Result<usize, i64> {
    usize::try_from(answer).map_err(|_| answer)
}

fn wide<T: Copy + Into<u64>>(columns: &[&[T]]) -> Vec<u64> {
    columns.iter().flat_map(|column| column.iter().map(|&one| one.into())).collect()
}

/// A job of either kind, that ends with this.
struct Running<J>(*mut J, unsafe extern "C" fn(*mut J));

impl<J> Drop for Running<J> {
    fn drop(&mut self) {
        unsafe { armed(|| self.1(self.0)) }
    }
}

type Run<J> = unsafe extern "C" fn(*mut J, u32) -> i64;

fn done<J>(begin: impl FnOnce() -> *mut J, run: Run<J>, free: unsafe extern "C" fn(*mut J)) -> Result<Running<J>, i64> {
    let job = Running(armed(begin), free);
    if job.0.is_null() {
        return Err(gx_refused());
    }
    while told(armed(|| unsafe { run(job.0, 1000) }))? == 0 {}
    Ok(job)
}

fn job(begin: impl FnOnce() -> *mut Job) -> Result<Running<Job>, i64> {
    done(begin, gx_job_run, gx_job_free)
}

fn graph_job(begin: impl FnOnce() -> *mut GraphJob) -> Result<Running<GraphJob>, i64> {
    done(begin, gx_graph_run, gx_graph_free)
}

const SMALL: usize = 20_000;
const WORDS: usize = 6; // of a small block
const LARGE: usize = 400_000; // words of the last block: more than are looked at in one go
const BASE: u64 = 0x10_0000;

/// Small blocks that point at each other, two in a row far away, one with many pointers, a large one.
struct World {
    words: Vec<u64>,
    address: Vec<u64>,
    size: Vec<u64>,
    ones: Vec<u8>,
    roots: Vec<u8>,
    starts: [u64; 1],
    places: [u64; 1],
    lengths: [u64; 1],
}

impl World {
    fn new() -> Self {
        let many = 3000;
        let mut random = 1u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let of = |row: usize| BASE + 8 * (row * WORDS) as u64;
        let words: Vec<u64> = (0..SMALL * WORDS + many + LARGE)
            .map(|at| match next(if at < SMALL * WORDS + many { 6 } else { 1000 }) {
                0 => of(next(SMALL)),
                1 => of(next(SMALL)) + 3,
                2 => of(SMALL),
                _ => 7,
            })
            .collect();
        let mut address: Vec<u64> = (0..=SMALL).map(of).collect();
        let mut size = vec![8 * WORDS as u64; SMALL];
        address.push(of(SMALL) + 8 * many as u64);
        size.extend([8 * many as u64, 8 * LARGE as u64]);
        address.extend([1 << 40, 1 << 50, (1 << 50) + (1 << 24)]);
        size.extend([8, 1 << 24, 1 << 24]);
        let ones = vec![1; address.len()];
        let roots = (0..address.len()).map(|row| [2, 1, 0, 0][row % 4]).collect();
        let (places, lengths) = ([words.as_ptr() as usize as u64], [8 * words.len() as u64]);
        World { words, address, size, ones, roots, starts: [BASE], places, lengths }
    }

    fn memory(&self) -> Memory {
        let (starts, places, lengths) = (self.starts.as_ptr(), self.places.as_ptr(), self.lengths.as_ptr());
        Memory { starts, places, lengths, count: 1 }
    }

    fn blocks(&self, index: *const Job) -> Blocks {
        let (address, size) = (self.address.as_ptr(), self.size.as_ptr());
        Blocks { address, size, count: self.address.len() as u64, index }
    }

    fn index(&self) -> Result<Running<Job>, i64> {
        job(|| unsafe { gx_index_new(&self.blocks(null())) })
    }
}

fn pointers(mangled: u32) -> PointerRules {
    PointerRules { clear: 0, headers: [0; 8], word: 8, swapped: 0, mangled, part: 0 }
}

fn links() -> LinkRules {
    let numbers = [0; 5];
    let [next, mask, relative, end_bits, leaf_bits] = numbers;
    let (sentinels, sentinel_count, forbidden, forbidden_count) = (null(), 0, null(), 0);
    let (alignment, word, swapped, mangled, unused) = (1, 8, 0, 0, 0);
    #[rustfmt::skip]
    let rules = LinkRules {
        next, mask, relative, end_bits, leaf_bits, alignment, sentinels, sentinel_count, forbidden, forbidden_count,
        word, swapped, mangled, unused,
    };
    rules
}

/// Chains through all words, most of which end outside or in a circle.
fn chains(world: &World) -> Answer {
    let (memory, rules) = (world.memory(), links());
    let count = world.address.len() as u64;
    let firsts = world.address.as_ptr();
    let walk = job(|| unsafe { gx_chains_new(&memory, firsts, count, null(), null(), 100_000, &rules) })?;
    let found = told(unsafe { gx_job_found(walk.0) })?;
    let (mut lengths, mut ends, mut nodes) = (vec![0; count as usize], vec![0u8; count as usize], vec![0; found]);
    let (mut last, mut cycles) = (lengths.clone(), lengths.clone());
    let columns = (lengths.as_mut_ptr(), ends.as_mut_ptr(), last.as_mut_ptr(), cycles.as_mut_ptr());
    let write =
        || unsafe { gx_chains_write(walk.0, count, columns.0, columns.1, columns.2, columns.3, nodes.as_mut_ptr()) };
    told(armed(write))?;
    Ok([wide(&[&lengths, &last, &cycles, &nodes]), wide(&[&ends])].concat())
}

/// A chain through every word of memory, and one through every other.
fn tally(_: &World) -> Answer {
    let count = 50_000u64;
    let words: Vec<u64> = (0..count).map(|at| if at + 2 < count { BASE + 8 * (at + 2) } else { 0 }).collect();
    let (starts, places, lengths) = ([BASE], [words.as_ptr() as usize as u64], [8 * count]);
    let memory = Memory { starts: starts.as_ptr(), places: places.as_ptr(), lengths: lengths.as_ptr(), count: 1 };
    let firsts: Vec<u64> = (0..6000).map(|row| if row % 3000 == 0 { BASE + row / 3000 * 8 } else { 0 }).collect();
    let count = firsts.len() as u64;
    let (bytes, stride, stop, stop_step, total, word, swapped) = (8 * count, 8, 0, 0, 1 << 20, 8, 0);
    let firsts = firsts.as_ptr() as *const u8;
    let heads = TallyHeads { firsts, bytes, count, stride, stop, stop_step, total, word, swapped, stops: 0, unused: 0 };
    let rules = links();
    let sums = job(|| unsafe { gx_tally_new(&memory, &heads, &rules) })?;
    let mut sample = vec![0; told(unsafe { gx_job_found(sums.0) })?];
    let mut figures = vec![0; 7];
    assert_eq!(armed(|| unsafe { gx_tally_write(sums.0, figures.as_mut_ptr(), sample.as_mut_ptr()) }), 1);
    Ok(wide(&[&figures, &sample]))
}

fn scan(world: &World, mangled: u32) -> Answer {
    let (memory, index) = (world.memory(), world.index()?);
    let (blocks, rules) = (world.blocks(index.0), pointers(mangled));
    let scan = job(|| unsafe { gx_scan_new(&memory, &blocks, null(), &rules, u64::MAX) })?;
    let found = told(unsafe { gx_job_found(scan.0) })?;
    let (mut places, mut rows, mut interior) = (vec![0u64; found], vec![0u32; found], vec![0u8; found]);
    let columns = (places.as_mut_ptr(), rows.as_mut_ptr(), interior.as_mut_ptr());
    told(armed(|| unsafe { gx_scan_write(scan.0, columns.0, columns.1, columns.2) }))?;
    Ok([places, wide(&[&rows]), wide(&[&interior])].concat())
}

fn mark(world: &World, mangled: u32) -> Answer {
    let (memory, blocks, rules) = (world.memory(), world.blocks(null()), pointers(mangled));
    let (live, roots) = (world.ones.as_ptr(), world.roots.as_ptr());
    let mark = job(|| unsafe { gx_mark_new(&memory, &blocks, live, roots, &rules) })?;
    let mut states = vec![0u8; world.address.len()];
    told(armed(|| unsafe { gx_mark_write(mark.0, states.len() as u64, states.as_mut_ptr()) }))?;
    Ok(wide(&[&states]))
}

struct Found {
    first: Vec<u64>,
    to: Vec<u32>,
    interior: Vec<u8>,
}

impl Found {
    fn edges(&self) -> Edges {
        let (first, to, interior) = (self.first.as_ptr(), self.to.as_ptr(), self.interior.as_ptr());
        Edges { first, to, interior, rows: self.first.len() as u64 - 1, edges: self.to.len() as u64 }
    }
}

fn found_edges(world: &World, mangled: u32) -> Result<Found, i64> {
    let (memory, blocks, rules) = (world.memory(), world.blocks(null()), pointers(mangled));
    let search = graph_job(|| unsafe { gx_edges_new(&memory, &blocks, world.ones.as_ptr(), &rules, u64::MAX) })?;
    let count = told(unsafe { gx_edges_found(search.0) })?;
    let rows = world.address.len();
    let mut found = Found { first: vec![0; rows + 1], to: vec![0; count], interior: vec![0; count] };
    let columns = (found.first.as_mut_ptr(), found.to.as_mut_ptr(), found.interior.as_mut_ptr());
    let write = || unsafe { gx_edges_write(search.0, rows as u64, count as u64, columns.0, columns.1, columns.2) };
    told(armed(write))?;
    Ok(found)
}

fn edges(world: &World, mangled: u32) -> Answer {
    let found = found_edges(world, mangled)?;
    Ok([wide(&[&found.first]), wide(&[&found.to]), wide(&[&found.interior])].concat())
}

fn components(found: &Found, world: &World) -> Answer {
    let (edges, rows) = (found.edges(), world.ones.len());
    let search = graph_job(|| unsafe { gx_components_new(&edges, world.ones.as_ptr(), 1) })?;
    let mut components = vec![0u32; rows];
    told(armed(|| unsafe { gx_components_write(search.0, rows as u64, components.as_mut_ptr()) }))?;
    Ok(wide(&[&components]))
}

fn breadth(found: &Found, world: &World) -> Answer {
    let (edges, rows) = (found.edges(), world.ones.len());
    let search = graph_job(|| unsafe { gx_breadth_new(&edges, world.roots.as_ptr(), world.ones.as_ptr()) })?;
    let (mut parents, mut depths) = (vec![0u32; rows], vec![0u32; rows]);
    let columns = (parents.as_mut_ptr(), depths.as_mut_ptr());
    told(armed(|| unsafe { gx_breadth_write(search.0, rows as u64, columns.0, columns.1) }))?;
    Ok(wide(&[&parents, &depths]))
}

fn retained(found: &Found, world: &World) -> Answer {
    let (edges, nodes) = (found.edges(), world.ones.len() + 10);
    let (entry, entries): (Vec<u32>, Vec<u32>) = (0..500).map(|at| (at * 31, at % 10)).unzip();
    let (rows, roots) = (entry.as_ptr(), entries.as_ptr());
    let search = graph_job(|| unsafe { gx_dominators_new(&edges, rows, roots, entry.len() as u64, 10) })?;
    let mut dominators = vec![0u32; nodes];
    told(armed(|| unsafe { gx_dominators_write(search.0, nodes as u64, dominators.as_mut_ptr()) }))?;
    let (size, mut bytes, mut counts) = (vec![3u64; nodes], vec![0u64; nodes], vec![0u32; nodes]);
    let (of, given) = (dominators.as_ptr(), (size.as_ptr(), nodes as u64));
    let columns = (bytes.as_mut_ptr(), counts.as_mut_ptr());
    let sums = graph_job(|| unsafe { gx_retained_new(of, given.0, given.1, nodes as u64, columns.0, columns.1) })?;
    told(unsafe { gx_retained_sound(sums.0) })?;
    Ok([wide(&[&dominators]), bytes, wide(&[&counts])].concat())
}

fn counts(world: &World) -> Answer {
    let (count, room) = (world.address.len() as u64, 30_000);
    let mut category = [255; 256];
    (category[0], category[1], category[2]) = (0, 1, 2);
    let (mut values, mut counts) = (vec![0; room], vec![0; 3 * room]);
    let (found, sums) = (values.as_mut_ptr(), counts.as_mut_ptr());
    let (words, kinds) = (world.words.as_ptr(), world.roots.as_ptr());
    let count = || unsafe { gx_count_values(words, kinds, count, category.as_ptr(), 3, found, sums, room as u64) };
    told(armed(count))?;
    Ok(wide(&[&values, &counts]))
}

fn pages(world: &World) -> Answer {
    let (memory, mut reached, mut whole, mut zero) = (world.memory(), [0; 2], [0; 1], [0; 1]);
    let (starts, ends) = ([BASE], [u64::MAX]);
    let columns = (reached.as_mut_ptr(), whole.as_mut_ptr(), zero.as_mut_ptr());
    let step =
        || unsafe { gx_page_census(&memory, starts.as_ptr(), ends.as_ptr(), 1, 4096, columns.0, columns.1, columns.2) };
    while told(armed(step))? == 0 {}
    Ok(vec![whole[0], zero[0]])
}

fn lookups(world: &World) -> Answer {
    let (blocks, mut rows) = (world.blocks(null()), vec![0i64; world.words.len()]);
    let count = rows.len() as u64;
    told(armed(|| unsafe { gx_find_blocks(&blocks, world.words.as_ptr(), count, 0, rows.as_mut_ptr()) }))?;
    Ok(rows.into_iter().map(|row| row as u64).collect())
}

fn plan(first: usize, every: usize) {
    ASKED.store(0, Ordering::SeqCst);
    FIRST.store(first, Ordering::SeqCst);
    EVERY.store(every, Ordering::SeqCst);
}

/// Holds a kernel to what it must do wherever memory ends.
fn check(name: &str, kernel: &dyn Fn() -> Answer) {
    plan(NEVER, NEVER);
    let expected = kernel().unwrap();
    let number = ASKED.load(Ordering::SeqCst);
    assert!(number > 0, "{name} takes no memory");
    let mut failed = 0;
    let mut attempt = |first, every| {
        plan(first, every);
        match kernel() {
            Ok(answer) => assert!(answer == expected, "{name}: another answer, {first} {every}"),
            Err(status) => {
                assert_eq!(status, OUT_OF_MEMORY, "{name}: {first} {every}");
                failed += 1;
            }
        }
    };
    for first in (0..number).step_by(number / 60 + 1) {
        attempt(first, NEVER); // this one alone: what is taken for speed only may do without
        attempt(first, 1);
    }
    for every in 2..10 {
        attempt(every - 1, every);
    }
    assert!(failed > number.min(60) / 2, "{name}: {failed} of {number}");
    plan(NEVER, NEVER);
    assert!(kernel().unwrap() == expected, "{name} suffers from what was before");
}

fn check_all(world: &World) {
    plan(NEVER, NEVER);
    let graph = found_edges(world, 0).unwrap();
    check("chains", &|| chains(world));
    check("tally", &|| tally(world));
    check("counts", &|| counts(world));
    check("pages", &|| pages(world));
    check("lookups", &|| lookups(world));
    check("components", &|| components(&graph, world));
    check("breadth", &|| breadth(&graph, world));
    check("retained", &|| retained(&graph, world));
    for mangled in [0, 1] {
        check("scan", &|| scan(world, mangled));
        check("mark", &|| mark(world, mangled));
        check("edges", &|| edges(world, mangled));
    }
}

#[test]
fn no_allocation_that_fails_ends_the_process() {
    assert_eq!(gx_abi(), ABI);
    let all = || {
        let world = World::new();
        for threads in [1, 4] {
            gx_threads(threads);
            check_all(&world);
        }
    };
    std::thread::spawn(all).join().unwrap();
}
