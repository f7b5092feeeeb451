//! Dominators: against what cannot be reached without a node; what is kept: against each node's way up.
#![no_main]

use gdbext_native::digraph::NONE;
use gdbext_native::dominators::{Job, SUPER};
use gdbext_native::retained;
use gdbext_native_fuzz::{reached, run, Edges, Reader};
use libfuzzer_sys::fuzz_target;

/// The last of `nodes` leads to all; of the dominators of a node, the immediate one has the most itself.
fn model(nodes: usize, edges: &[(usize, usize)]) -> Vec<u32> {
    let top = nodes - 1;
    let everything = reached(nodes, &[top], edges);
    let without = |gone: usize| {
        let rest: Vec<_> = edges.iter().copied().filter(|&(from, to)| from != gone && to != gone).collect();
        reached(nodes, &[top], &rest)
    };
    let kept: Vec<_> = (0..top).map(without).collect();
    let above =
        |node: usize| (0..top).filter(|&by| by != node && everything[by] && !kept[by][node]).collect::<Vec<_>>();
    (0..top)
        .map(|node| match everything[node] {
            true => above(node).into_iter().max_by_key(|&by| above(by).len()).map_or(SUPER, |by| by as u32),
            false => NONE,
        })
        .collect()
}

fn sums(dominators: &[u32], size: &[u64]) -> Option<(Vec<u64>, Vec<u32>)> {
    let (mut bytes, mut counts) = (vec![0u64; size.len()], vec![0; size.len()]);
    for node in 0..size.len() {
        let mut at = node as u32;
        for step in 0.. {
            match at {
                NONE if step == 0 => break,
                SUPER => break,
                _ if at as usize >= size.len() || step > size.len() => return None,
                _ => {}
            }
            if step > 0 || dominators[node] != NONE {
                bytes[at as usize] = bytes[at as usize].wrapping_add(size[node]);
                counts[at as usize] += 1;
                at = dominators[at as usize];
                if at == NONE {
                    return None;
                }
            } else {
                break;
            }
        }
    }
    Some((bytes, counts))
}

fn sum(dominators: &[u32], size: &[u64], interrupted: bool) -> Option<(Vec<u64>, Vec<u32>)> {
    let (mut bytes, mut counts) = (vec![9; size.len()], vec![9; size.len()]);
    let mut job = retained::Job::new(dominators, size, &mut bytes, &mut counts).unwrap();
    run(|deadline| job.run(deadline), interrupted);
    let sound = job.sound();
    Some((bytes, counts)).filter(|_| sound)
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let given = Edges::read(&mut from);
    let graph = match given.graph() {
        Some(graph) => graph,
        None => return,
    };
    let (rows, roots) = (graph.rows(), from.upto(3));
    let count = if rows > 0 && roots > 0 { from.upto(6) } else { 0 };
    let mut entry: Vec<u32> = (0..count).map(|_| from.upto(rows as u8 - 1) as u32).collect();
    let entries: Vec<u32> = (0..count).map(|_| from.upto(roots as u8 - 1) as u32).collect();
    let top = rows + roots;
    let mut edges: Vec<_> = given.all().into_iter().map(|(row, to, _)| (row, to)).collect();
    edges.extend(entry.iter().zip(&entries).map(|(&row, &root)| (rows + root as usize, row as usize)));
    edges.extend((rows..top).map(|root| (top, root)));
    let expected = model(top + 1, &edges);
    let mut found = vec![9; top];
    for interrupted in [false, true] {
        let mut job = Job::new(graph, &entry, &entries, roots).unwrap();
        run(|deadline| job.run(deadline).unwrap(), interrupted);
        job.write(&mut found);
        assert_eq!(found, expected, "interrupted: {interrupted}");
    }
    let size: Vec<u64> = found.iter().map(|_| from.hostile()).collect();
    assert!(sums(&found, &size).is_some());
    if from.one_in(3) && top > 0 {
        let at = from.upto(top as u8 - 1);
        found[at] = [from.upto(20) as u32, NONE, SUPER, from.hostile() as u32][from.upto(3)];
    }
    for interrupted in [false, true] {
        assert_eq!(sum(&found, &size, interrupted), sums(&found, &size), "interrupted: {interrupted}");
    }
    if let Some(row) = entry.first_mut() {
        *row = rows as u32;
        assert!(Job::new(graph, &entry, &entries, roots).is_err());
    }
});
