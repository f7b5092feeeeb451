//! The C ABI of the kernels over graphs of blocks, under the rules of [`ffi`](crate::ffi).

use std::time::{Duration, Instant};

use crate::digraph::Graph;
use crate::fallible::{kept, Error, Result};
use crate::ffi::{block_index, caught, given, guarded, outlasting, read, started, write};
use crate::ffi::{Blocks, Indexed, Memory, PointerRules, NO_ROOM};
use crate::memory::Spans;
use crate::{breadth, components, dominators, edges, retained};

/// A graph as it comes: `rows + 1` in `first`, `edges` in the others.
#[repr(C)]
pub struct Edges {
    pub first: *const u64,
    pub to: *const u32,
    pub interior: *const u8,
    pub rows: u64,
    pub edges: u64,
}

impl Edges {
    /// # Safety
    /// The arrays are as the type says and live for `'a`.
    unsafe fn graph<'a>(&self) -> Result<Graph<'a>> {
        let first = unsafe { read(self.first, given(self.rows.checked_add(1))?)? };
        given(unsafe { Graph::new(first, read(self.to, self.edges)?, read(self.interior, self.edges)?) })
    }
}

/// Work that is done in steps. What it refers to stands behind it, so that it goes first.
pub struct GraphJob {
    work: Work,
    _index: Option<Indexed>,
    _memory: Vec<Spans<'static>>,
}

enum Work {
    Edges(edges::Job<'static>),
    Components(components::Job<'static>),
    Breadth(breadth::Job<'static>),
    Dominators(dominators::Job),
    Retained(retained::Job<'static>),
    /// Work that came to nothing.
    Failed(Error),
}

fn alone(work: Work) -> GraphJob {
    GraphJob { work, _index: None, _memory: Vec::new() }
}

/// Begins a search for edges; see [`edges::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `memory`, `blocks` and `rules` are as their types say; `live` has a byte for each block.
#[no_mangle]
pub unsafe extern "C" fn gx_edges_new(
    memory: *const Memory,
    blocks: *const Blocks,
    live: *const u8,
    rules: *const PointerRules,
    most: u64,
) -> *mut GraphJob {
    started(|| {
        let memory = unsafe { kept(given(memory.as_ref())?.spans()?)? };
        let index = unsafe { block_index(blocks)? };
        let live = unsafe { read(live, index.of.len() as u64)? };
        let pointers = unsafe { given(rules.as_ref())?.pointers()? };
        let work = Work::Edges(edges::Job::new(unsafe { outlasting(&memory[0]) }, index.of, pointers, live, most)?);
        Ok(GraphJob { work, _index: Some(index), _memory: memory })
    })
}

/// Begins a search for components; see [`components::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `edges` is as its type says; `wanted` has a byte for each row.
#[no_mangle]
pub unsafe extern "C" fn gx_components_new(edges: *const Edges, wanted: *const u8, interior: u32) -> *mut GraphJob {
    started(|| {
        let graph = unsafe { given(edges.as_ref())?.graph()? };
        let wanted = unsafe { read(wanted, graph.rows() as u64)? };
        Ok(alone(Work::Components(components::Job::new(graph, wanted, interior != 0)?)))
    })
}

/// Begins a search for shortest ways; see [`breadth::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `edges` is as its type says; `roots` and `live` have a byte for each row.
#[no_mangle]
pub unsafe extern "C" fn gx_breadth_new(edges: *const Edges, roots: *const u8, live: *const u8) -> *mut GraphJob {
    started(|| {
        let graph = unsafe { given(edges.as_ref())?.graph()? };
        let rows = graph.rows() as u64;
        let (roots, live) = unsafe { (read(roots, rows)?, read(live, rows)?) };
        Ok(alone(Work::Breadth(breadth::Job::new(graph, roots, live)?)))
    })
}

/// Begins a search for dominators; see [`dominators::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `edges` is as its type says; `entry` and `entries` have `count` items. None of them is needed any more.
#[no_mangle]
pub unsafe extern "C" fn gx_dominators_new(
    edges: *const Edges,
    entry: *const u32,
    entries: *const u32,
    count: u64,
    roots: u64,
) -> *mut GraphJob {
    started(|| {
        let graph = unsafe { given(edges.as_ref())?.graph()? };
        let (entry, entries) = unsafe { (read(entry, count)?, read(entries, count)?) };
        let roots = given(u32::try_from(roots).ok())? as usize;
        Ok(alone(Work::Dominators(dominators::Job::new(graph, entry, entries, roots)?)))
    })
}

/// Begins sums over a dominator tree; see [`retained::Job::new`]. Null when an argument cannot be.
///
/// # Safety
/// `size` has `sizes` items, the other arrays have `nodes`; nobody else writes `bytes` and `counts` until it is freed.
#[no_mangle]
pub unsafe extern "C" fn gx_retained_new(
    dominators: *const u32,
    size: *const u64,
    sizes: u64,
    nodes: u64,
    bytes: *mut u64,
    counts: *mut u32,
) -> *mut GraphJob {
    started(|| {
        let (dominators, size) = unsafe { (read(dominators, nodes)?, read(size, sizes)?) };
        let (bytes, counts) = unsafe { (write(bytes, nodes)?, write(counts, nodes)?) };
        Ok(alone(Work::Retained(retained::Job::new(dominators, size, bytes, counts)?)))
    })
}

/// Works for so many milliseconds. Returns 1 when the job is done, 0 when there is more to do.
///
/// # Safety
/// `job` is one that was begun and not freed.
#[no_mangle]
pub unsafe extern "C" fn gx_graph_run(job: *mut GraphJob, milliseconds: u32) -> i64 {
    guarded(|| {
        let deadline = Instant::now() + Duration::from_millis(milliseconds.into());
        let work = unsafe { &mut given(job.as_mut())?.work };
        let done = match work {
            Work::Edges(work) => work.run(deadline),
            Work::Components(work) => work.run(deadline),
            Work::Breadth(work) => work.run(deadline),
            Work::Dominators(work) => work.run(deadline),
            Work::Retained(work) => work.run(deadline),
            Work::Failed(error) => Err(*error),
        };
        if let Err(error) = done {
            *work = Work::Failed(error); // and what it held is given back
        }
        Ok(i64::from(done?))
    })
}

/// Returns how many edges a search has found, [`NO_ROOM`] when there are more than there may be. Only for a job that is
/// done.
///
/// # Safety
/// As [`gx_graph_run`].
#[no_mangle]
pub unsafe extern "C" fn gx_edges_found(job: *const GraphJob) -> i64 {
    guarded(|| match unsafe { &given(job.as_ref())?.work } {
        Work::Edges(work) if work.full() => Ok(NO_ROOM),
        Work::Edges(work) => Ok(work.edges() as i64),
        _ => Err(Error::BadArgument),
    })
}

/// Writes the edges. Only for a job that is done.
///
/// # Safety
/// As [`gx_graph_run`]; `first` has `rows + 1` places, the others `edges`.
#[no_mangle]
pub unsafe extern "C" fn gx_edges_write(
    job: *const GraphJob,
    rows: u64,
    edges: u64,
    first: *mut u64,
    to: *mut u32,
    interior: *mut u8,
) -> i64 {
    guarded(|| match unsafe { &given(job.as_ref())?.work } {
        Work::Edges(work) if rows == work.rows() as u64 && edges == work.edges() as u64 && !work.full() => {
            let first = unsafe { write(first, rows + 1)? };
            unsafe { work.write(first, write(to, edges)?, write(interior, edges)?) };
            Ok(0)
        }
        _ => Err(Error::BadArgument),
    })
}

/// Writes the component of each row. Only for a job that is done.
///
/// # Safety
/// As [`gx_graph_run`]; `components` has `rows` places.
#[no_mangle]
pub unsafe extern "C" fn gx_components_write(job: *const GraphJob, rows: u64, components: *mut u32) -> i64 {
    guarded(|| match unsafe { &given(job.as_ref())?.work } {
        Work::Components(work) if rows == work.rows() as u64 => {
            work.write(unsafe { write(components, rows)? })?;
            Ok(0)
        }
        _ => Err(Error::BadArgument),
    })
}

/// Writes the parent and the depth of each row. Only for a job that is done.
///
/// # Safety
/// As [`gx_graph_run`]; the arrays have `rows` places.
#[no_mangle]
pub unsafe extern "C" fn gx_breadth_write(job: *const GraphJob, rows: u64, parents: *mut u32, depths: *mut u32) -> i64 {
    guarded(|| match unsafe { &given(job.as_ref())?.work } {
        Work::Breadth(work) if rows == work.rows() as u64 => {
            unsafe { work.write(write(parents, rows)?, write(depths, rows)?) };
            Ok(0)
        }
        _ => Err(Error::BadArgument),
    })
}

/// Writes the dominator of each node. Only for a job that is done.
///
/// # Safety
/// As [`gx_graph_run`]; `dominators` has `nodes` places.
#[no_mangle]
pub unsafe extern "C" fn gx_dominators_write(job: *const GraphJob, nodes: u64, dominators: *mut u32) -> i64 {
    guarded(|| match unsafe { &given(job.as_ref())?.work } {
        Work::Dominators(work) if nodes == work.nodes() as u64 => {
            work.write(unsafe { write(dominators, nodes)? });
            Ok(0)
        }
        _ => Err(Error::BadArgument),
    })
}

/// Returns 0 where the sums are those of a tree, else [`BAD_ARGUMENT`](crate::ffi::BAD_ARGUMENT). Only for a job that is done.
///
/// # Safety
/// As [`gx_graph_run`].
#[no_mangle]
pub unsafe extern "C" fn gx_retained_sound(job: *const GraphJob) -> i64 {
    guarded(|| match unsafe { &given(job.as_ref())?.work } {
        Work::Retained(work) if work.sound() => Ok(0),
        _ => Err(Error::BadArgument),
    })
}

/// Frees a job; null is none.
///
/// # Safety
/// `job` is null, or one that was begun and not freed.
#[no_mangle]
pub unsafe extern "C" fn gx_graph_free(job: *mut GraphJob) {
    if !job.is_null() {
        caught(|| drop(unsafe { Box::from_raw(job) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::BAD_ARGUMENT;
    use std::ptr::{null, null_mut};

    unsafe fn run(job: *mut GraphJob) {
        unsafe { while gx_graph_run(job, 0) == 0 {} }
    }

    #[test]
    fn from_memory_to_what_is_kept() {
        let (content, address, size) = ([0x1010u64, 7, 0x1001, 0], [0x1000u64, 0x1010], [16u64, 16]);
        let (starts, places, lengths) = ([0x1000u64], [content.as_ptr() as usize as u64], [32u64]);
        let memory = Memory { starts: starts.as_ptr(), places: places.as_ptr(), lengths: lengths.as_ptr(), count: 1 };
        let blocks = Blocks { address: address.as_ptr(), size: size.as_ptr(), count: 2, index: null() };
        let rules = PointerRules { clear: 0, headers: [0; 8], word: 8, swapped: 0, mangled: 0, part: 0 };
        let (mut first, mut to, mut interior, ones) = ([9u64; 3], [9u32; 2], [9u8; 2], [1u8; 2]);
        unsafe {
            let job = gx_edges_new(&memory, &blocks, ones.as_ptr(), &rules, 1);
            run(job);
            assert_eq!(gx_edges_found(job), NO_ROOM);
            gx_graph_free(job);
            let job = gx_edges_new(&memory, &blocks, ones.as_ptr(), &rules, 2);
            run(job);
            assert_eq!(gx_edges_found(job), 2);
            let columns = (first.as_mut_ptr(), to.as_mut_ptr(), interior.as_mut_ptr());
            assert_eq!(gx_edges_write(job, 1, 2, columns.0, columns.1, columns.2), BAD_ARGUMENT);
            assert_eq!(gx_edges_write(job, 2, 2, columns.0, columns.1, columns.2), 0);
            gx_graph_free(job);
            assert_eq!((first, to, interior), ([0, 1, 2], [1, 0], [0, 1]));

            let edges =
                Edges { first: first.as_ptr(), to: to.as_ptr(), interior: interior.as_ptr(), rows: 2, edges: 2 };
            let job = gx_components_new(&edges, ones.as_ptr(), 1);
            run(job);
            assert_eq!(gx_components_write(job, 3, to.as_mut_ptr()), BAD_ARGUMENT);
            let mut components = [9; 2];
            assert_eq!(gx_components_write(job, 2, components.as_mut_ptr()), 0);
            assert_eq!(gx_edges_found(job), BAD_ARGUMENT);
            gx_graph_free(job);
            assert_eq!(components, [0, 0]);

            let roots = [0u8, 2];
            let job = gx_breadth_new(&edges, roots.as_ptr(), ones.as_ptr());
            run(job);
            let (mut parents, mut depths) = ([9; 2], [9; 2]);
            assert_eq!(gx_breadth_write(job, 2, parents.as_mut_ptr(), depths.as_mut_ptr()), 0);
            gx_graph_free(job);
            assert_eq!((parents, depths), ([1, breadth::ROOT], [1, 0]));

            let (entry, entries) = ([1u32], [0u32]);
            assert!(gx_dominators_new(&edges, entry.as_ptr(), entries.as_ptr(), 1, 0).is_null());
            let job = gx_dominators_new(&edges, entry.as_ptr(), entries.as_ptr(), 1, 1);
            run(job);
            let mut found = [9; 3];
            assert_eq!(gx_dominators_write(job, 3, found.as_mut_ptr()), 0);
            gx_graph_free(job);
            assert_eq!(found, [1, 2, dominators::SUPER]);

            let (size, mut bytes, mut counts) = ([16u64, 16], [9; 3], [9; 3]);
            let job = gx_retained_new(found.as_ptr(), size.as_ptr(), 2, 3, bytes.as_mut_ptr(), counts.as_mut_ptr());
            run(job);
            assert_eq!(gx_retained_sound(job), 0);
            gx_graph_free(job);
            assert_eq!((bytes, counts), ([16, 32, 32], [1, 2, 3]));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (first, to, interior, ones) = ([0u64, 1], [1u32], [0u8], [1u8]);
        let edges =
            |rows| Edges { first: first.as_ptr(), to: to.as_ptr(), interior: interior.as_ptr(), rows, edges: 1 };
        unsafe {
            assert!(gx_components_new(&edges(1), ones.as_ptr(), 0).is_null());
            assert!(gx_components_new(&edges(u64::MAX), ones.as_ptr(), 0).is_null());
            assert!(gx_components_new(null(), ones.as_ptr(), 0).is_null());
            assert!(gx_breadth_new(&edges(1), null(), ones.as_ptr()).is_null());
            assert!(gx_edges_new(null(), null(), null(), null(), 0).is_null());
            assert!(gx_retained_new(null(), null(), 1, 1, null_mut(), null_mut()).is_null());
            let (circle, mut bytes, mut counts) = ([0u32], [9; 1], [9; 1]);
            let job = gx_retained_new(circle.as_ptr(), first.as_ptr(), 1, 1, bytes.as_mut_ptr(), counts.as_mut_ptr());
            run(job);
            assert_eq!(gx_retained_sound(job), BAD_ARGUMENT);
            gx_graph_free(job);
            assert_eq!(gx_graph_run(null_mut(), 0), BAD_ARGUMENT);
            assert_eq!(gx_edges_found(null()), BAD_ARGUMENT);
            gx_graph_free(null_mut());
        }
    }
}
