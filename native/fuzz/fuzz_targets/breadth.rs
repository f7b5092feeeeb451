//! Shortest ways: against distances relaxed over all edges until nothing changes.
#![no_main]

use gdbext_native::breadth::{Job, ROOT};
use gdbext_native::digraph::NONE;
use gdbext_native_fuzz::{run, Edges, Reader};
use libfuzzer_sys::fuzz_target;

/// Relaxes what is not `fixed`; a parent is the lowest row that leads on at the distance.
fn relax(edges: &[(usize, usize)], fixed: &[bool], depths: &mut [u32], parents: &mut [u32]) {
    for _ in 0..=depths.len() {
        for &(from, to) in edges {
            if depths[from] != NONE && !fixed[to] {
                depths[to] = depths[to].min(depths[from] + 1);
            }
        }
    }
    for &(from, to) in edges {
        if !fixed[to] && depths[from] != NONE && depths[from] + 1 == depths[to] {
            parents[to] = parents[to].min(from as u32);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let given = Edges::read(&mut from);
    let graph = match given.graph() {
        Some(graph) => graph,
        None => return,
    };
    let live: Vec<u8> = (0..graph.rows()).map(|_| u8::from(!from.one_in(6))).collect();
    let roots: Vec<u8> = (0..graph.rows()).map(|_| [0, 0, 0, 0, 0, 1, 2, 255][from.upto(7)]).collect();
    let edges = |interior: bool| {
        let counts = |&(row, to, into): &(usize, usize, bool)| live[row] & live[to] != 0 && (interior || !into);
        given.all().into_iter().filter(counts).map(|(row, to, _)| (row, to)).collect::<Vec<_>>()
    };
    let (mut depths, mut parents) = (vec![NONE; live.len()], vec![NONE; live.len()]);
    for (least, interior) in [(2, false), (1, true)] {
        for row in 0..live.len() {
            if live[row] != 0 && roots[row] >= least && depths[row] == NONE {
                (depths[row], parents[row]) = (0, ROOT);
            }
        }
        let fixed: Vec<bool> = depths.iter().map(|&depth| depth != NONE).collect();
        relax(&edges(interior), &fixed, &mut depths, &mut parents);
    }
    for interrupted in [false, true] {
        let mut job = Job::new(graph, &roots, &live).unwrap();
        run(|deadline| job.run(deadline).unwrap(), interrupted);
        let (mut found_parents, mut found_depths) = (vec![9; live.len()], vec![9; live.len()]);
        job.write(&mut found_parents, &mut found_depths);
        assert_eq!((&found_parents, &found_depths), (&parents, &depths), "interrupted: {interrupted}");
    }
});
