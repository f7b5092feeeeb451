//! Walks along chains: against one node by node, and the same however often they are left and taken up again.
#![no_main]

use std::collections::HashMap;

use gdbext_native::chains::{End, Heads, Job, Rules};
use gdbext_native_fuzz::{run, Memory, Reader};
use libfuzzer_sys::fuzz_target;

/// What one chain came to.
#[derive(Clone, Debug, PartialEq)]
struct Chain {
    nodes: Vec<u64>,
    end: u8,
    last: u64,
    cycle: u64,
}

/// What a stored link leads to.
fn decoded(link: u64, node: u64, rules: &Rules) -> u64 {
    let place = node.wrapping_add(rules.next);
    let link = if rules.mangled { link ^ place >> 12 } else { link };
    let special = rules.sentinels.contains(&link) || rules.forbidden.contains(&link);
    if special || link & rules.end_bits != 0 || rules.mask | rules.leaf_bits | rules.relative == 0 && !rules.mangled {
        return link;
    }
    let word = if rules.words.size == 8 { u64::MAX } else { u64::from(u32::MAX) };
    match link & word & !rules.mask & !rules.leaf_bits {
        0 => 0,
        _ => (link & word & !(rules.mask & !rules.leaf_bits)).wrapping_add(rules.relative) & word,
    }
}

fn model(memory: &Memory, first: u64, stop: Option<u64>, most: u64, rules: &Rules) -> Chain {
    let (mut nodes, mut seen, mut node) = (Vec::new(), HashMap::new(), first);
    loop {
        let leaf = node & rules.leaf_bits != 0;
        let end = if node == 0 {
            Some(End::Null)
        } else if seen.contains_key(&node) {
            Some(End::Cycle) // a node that was walked once ends no chain at its second visit
        } else if rules.forbidden.contains(&node) {
            Some(End::Forbidden)
        } else if node & rules.end_bits != 0 {
            Some(End::Sentinel)
        } else if Some(node) == stop {
            Some(End::Head)
        } else if rules.sentinels.contains(&node) {
            Some(End::Sentinel)
        } else if nodes.len() as u64 >= most {
            Some(End::Limit)
        } else if leaf && memory.byte(node).is_none() {
            Some(End::Outside)
        } else if leaf {
            nodes.push(node & !rules.mask);
            return Chain { nodes, end: End::Null as u8, last: 0, cycle: 0 };
        } else if node & (rules.alignment - 1) != 0 {
            Some(End::Misaligned)
        } else {
            None
        };
        let link = memory.word(node.wrapping_add(rules.next), rules.words);
        let end = end.or(if link.is_none() { Some(End::Outside) } else { None });
        if let Some(end) = end {
            let cycle = if end == End::Cycle { nodes.len() - seen[&node] } else { 0 };
            return Chain { nodes, end: end as u8, last: node, cycle: cycle as u64 };
        }
        seen.insert(node, nodes.len());
        nodes.push(node);
        node = decoded(link.unwrap_or(0), node, rules);
    }
}

fn walked(memory: &Memory, heads: Heads, rules: &Rules, total: u64, interrupted: bool) -> Vec<Chain> {
    let spans = memory.spans().unwrap();
    let mut job = Job::new(&spans, heads, rules, total).unwrap();
    run(|deadline| job.run(deadline).unwrap(), interrupted);
    let count = heads.firsts.len();
    let (mut lengths, mut ends, mut last) = (vec![0; count], vec![0; count], vec![0; count]);
    let (mut cycles, mut nodes) = (vec![0; count], vec![0; job.nodes()]);
    job.write(&mut lengths, &mut ends, &mut last, &mut cycles, &mut nodes);
    let (mut chains, mut rest) = (Vec::new(), &nodes[..]);
    for row in 0..count {
        let (own, behind) = rest.split_at(lengths[row] as usize);
        chains.push(Chain { nodes: own.to_vec(), end: ends[row], last: last[row], cycle: cycles[row] });
        rest = behind;
    }
    assert!(rest.is_empty());
    chains
}

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    from.threads();
    let (base, words) = (from.base(), from.words());
    let bits = from.byte();
    let sentinels: Vec<u64> = (0..from.upto(7) / 4).map(|_| from.near(base)).collect();
    let forbidden: Vec<u64> = (0..from.upto(7) / 4).map(|_| from.near(base)).collect();
    let mut odd = |chosen: u8, usual: u64| match bits & chosen {
        0 => 0,
        _ if from.one_in(4) => from.hostile(),
        _ => usual,
    };
    let rules = Rules {
        words,
        next: odd(1, words.size as u64),
        mask: odd(2, 7),
        relative: odd(4, 8),
        end_bits: odd(8, 1),
        leaf_bits: odd(16, 2),
        mangled: bits & 32 != 0,
        alignment: if bits & 64 != 0 { 1 << from.upto(63) } else { 1 },
        sentinels: &sentinels,
        forbidden: &forbidden,
    };
    let count = from.upto(20);
    let firsts: Vec<u64> = (0..count).map(|_| from.near(base)).collect();
    let stops: Vec<u64> = (0..count).map(|_| if bits & 128 != 0 { from.near(base) } else { 0 }).collect();
    let bounded = from.one_in(3);
    let most: Vec<u64> = (0..count).map(|_| if bounded { from.upto(30) as u64 } else { u64::MAX }).collect();
    let total = if from.one_in(2) { from.upto(150) as u64 } else { from.hostile() };
    let heads = Heads {
        firsts: &firsts,
        stops: if bits & 128 != 0 { Some(&stops) } else { None },
        most: if bounded { Some(&most) } else { None },
    };
    let memory = Memory::read(&mut from, base, words, false);
    if memory.spans().is_none() {
        return;
    }
    let found = walked(&memory, heads, &rules, total, false);
    assert_eq!(found, walked(&memory, heads, &rules, total, true), "left and taken up again");
    let stop = |row: usize| heads.stops.map(|stops| stops[row]);
    let models: Vec<_> = (0..count).map(|row| model(&memory, firsts[row], stop(row), most[row], &rules)).collect();
    let all: u64 = models.iter().map(|chain| chain.nodes.len() as u64).sum();
    assert!(found.iter().map(|chain| chain.nodes.len() as u64).sum::<u64>() <= total);
    for (row, (found, model)) in found.iter().zip(&models).enumerate() {
        // Brent's walk goes round up to three times, which a bound of all may cut: the cycle is found all the same.
        if total >= 8 * all + 64 || found.end != End::Limit as u8 {
            assert_eq!(found, model, "chain {row}");
        } else {
            assert_eq!(found.nodes[..], model.nodes[..found.nodes.len()], "chain {row}");
        }
    }
});
