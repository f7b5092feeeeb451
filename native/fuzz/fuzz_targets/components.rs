//! Components: against a closure over all edges from each row.
#![no_main]

use gdbext_native::components::Job;
use gdbext_native::digraph::NONE;
use gdbext_native_fuzz::{reached, run, Edges, Reader};
use libfuzzer_sys::fuzz_target;

fn model(edges: &[(usize, usize)], wanted: &[u8]) -> Vec<u32> {
    let below: Vec<_> = (0..wanted.len()).map(|row| reached(wanted.len(), &[row], edges)).collect();
    let mut lowest = Vec::new();
    let of = |row: usize| (0..=row).find(|&other| below[row][other] && below[other][row]).unwrap();
    (0..wanted.len())
        .map(|row| {
            if wanted[row] == 0 {
                return NONE;
            }
            let number = lowest.iter().position(|&one| one == of(row)).unwrap_or(lowest.len());
            if number == lowest.len() {
                lowest.push(of(row));
            }
            number as u32
        })
        .collect()
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let (given, interior) = (Edges::read(&mut from), from.byte() & 1 != 0);
    let graph = match given.graph() {
        Some(graph) => graph,
        None => return,
    };
    let wanted: Vec<u8> = (0..graph.rows()).map(|_| u8::from(!from.one_in(6))).collect();
    let counts = |&(row, to, into): &(usize, usize, bool)| wanted[row] != 0 && wanted[to] != 0 && (interior || !into);
    let edges: Vec<_> = given.all().into_iter().filter(counts).map(|(row, to, _)| (row, to)).collect();
    let expected = model(&edges, &wanted);
    for interrupted in [false, true] {
        let mut job = Job::new(graph, &wanted, interior).unwrap();
        run(|deadline| job.run(deadline).unwrap(), interrupted);
        let mut components = vec![9; graph.rows()];
        job.write(&mut components).unwrap();
        assert_eq!(components, expected, "interrupted: {interrupted}");
    }
});
