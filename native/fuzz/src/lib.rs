//! What the fuzz targets share: arguments read out of the fuzzer's bytes, and memory to walk in.

use std::time::{Duration, Instant};

use gdbext_native::digraph::Graph;
use gdbext_native::memory::{Span, Spans, Words};
use gdbext_native::parallel;
use gdbext_native::scan::{Pointers, HEADERS};

/// Takes arguments from the fuzzer's bytes; zeros where these have come to an end.
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    /// A number from 0 to `most`, which is below 256.
    pub fn upto(&mut self, most: u8) -> usize {
        usize::from(self.byte()) % (usize::from(most) + 1)
    }

    /// Whether something that is so rare is so: one in `rare`.
    pub fn one_in(&mut self, rare: u8) -> bool {
        self.byte() % rare == rare - 1
    }

    /// Distances into blocks that count as their beginnings: none, mostly.
    pub fn headers(&mut self) -> [u64; HEADERS] {
        let mut headers = [0; HEADERS];
        if self.one_in(3) {
            headers.iter_mut().for_each(|header| *header = self.upto(24) as u64);
        }
        headers
    }

    pub fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number that arithmetic may go wrong with, or any.
    pub fn hostile(&mut self) -> u64 {
        let byte = self.byte();
        let small = u64::from(byte >> 3);
        match byte & 7 {
            0 => small,
            1 => u64::MAX - small,
            2 => 1 << (byte >> 2),
            3 => (1u64 << (byte >> 2)).wrapping_sub(1),
            4 => u64::from(u32::MAX) - small,
            5 => (1 << 32) + small,
            6 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            _ => self.number(),
        }
    }

    pub fn words(&mut self) -> Words {
        let byte = self.byte();
        Words { size: if byte & 1 == 0 { 8 } else { 4 }, swapped: byte & 2 != 0 }
    }

    /// An address at `base` or a little behind, or anything.
    pub fn near(&mut self, base: u64) -> u64 {
        let byte = self.byte();
        match byte {
            0..=207 => {
                base.wrapping_add(u64::from(byte & 63) * 4 + if byte & 64 != 0 { u64::from(byte >> 7) } else { 0 })
            }
            208..=223 => 0,
            224..=231 => u64::from(byte & 7),
            232..=247 => base.wrapping_add(1 << (byte & 15)),
            _ => self.hostile(),
        }
    }

    /// Where memory begins.
    pub fn base(&mut self) -> u64 {
        [0x1000, 0x1000, 0x1000, 0x7fff_ffff_f000, 0, 8, u64::MAX - 255, 0xffff_ff00][self.upto(7)]
    }

    /// Few threads: starting them costs more than the work. Two, now and then.
    pub fn threads(&mut self) {
        parallel::set_threads(if self.byte() == 77 { 2 } else { 1 });
    }
}

/// The bytes of a word as the target stores it.
pub fn stored(value: u64, words: Words) -> Vec<u8> {
    if words.size == 8 {
        let value = if words.swapped { value.swap_bytes() } else { value };
        value.to_ne_bytes().to_vec()
    } else {
        let value = if words.swapped { (value as u32).swap_bytes() } else { value as u32 };
        value.to_ne_bytes().to_vec()
    }
}

/// Memory in several stretches, each in an allocation of its own.
pub struct Memory(pub Vec<(u64, Vec<u8>)>);

impl Memory {
    /// Up to five stretches full of words near `base`, often adjacent, now and then overlapping or out of order. Where
    /// they must be `aligned`, they begin at multiples of 8.
    pub fn read(from: &mut Reader, base: u64, words: Words, aligned: bool) -> Self {
        let (mut spans, mut at) = (Vec::new(), base);
        for _ in 0..from.upto(4) {
            let gap = from.byte();
            at = at.wrapping_add(match gap >> 4 {
                0..=7 => 0,
                8 => 8,
                9 => 64,
                10 => 4096,
                11 => 1 << 26,
                12 => from.hostile(),
                13 => 1,
                14 => 0u64.wrapping_sub(16),
                _ => 4,
            });
            if aligned {
                at = at & !7;
            }
            let count = usize::from(gap & 15);
            let mut bytes: Vec<u8> = (0..count).flat_map(|_| stored(from.near(base), words)).collect();
            if gap & 0x40 != 0 {
                bytes.truncate(bytes.len().saturating_sub(from.upto(7)));
            }
            let bytes = bytes.into_boxed_slice().into_vec();
            let next = at.wrapping_add(bytes.len() as u64);
            spans.push((at, bytes));
            at = if aligned { next.wrapping_add(7) & !7 } else { next };
        }
        Memory(spans)
    }

    /// The memory as kernels take it, or None where they must not; both are held to a check of our own.
    pub fn spans(&self) -> Option<Spans<'_>> {
        let filled: Vec<_> = self.0.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        let end = |(start, bytes): &(u64, Vec<u8>)| u128::from(*start) + bytes.len() as u128;
        let sound = filled.iter().all(|span| end(span) <= 1 << 64)
            && filled.windows(2).all(|pair| end(pair[0]) <= u128::from(pair[1].0));
        let spans = Spans::new(self.0.iter().map(|(start, bytes)| Span { start: *start, bytes }).collect());
        assert_eq!(spans.is_some(), sound);
        spans
    }

    /// The byte at an address, by looking everywhere.
    pub fn byte(&self, address: u64) -> Option<u8> {
        let of = |(start, bytes): &(u64, Vec<u8>)| {
            let at = address.checked_sub(*start)?;
            bytes.get(usize::try_from(at).ok()?).copied()
        };
        self.0.iter().find_map(of)
    }

    /// The word at an address, byte by byte.
    pub fn word(&self, address: u64, words: Words) -> Option<u64> {
        let bytes: Option<Vec<u8>> = (0..words.size as u64).map(|at| self.byte(address.checked_add(at)?)).collect();
        Some(number(&bytes?, words))
    }
}

/// The number that the bytes of a word are.
pub fn number(bytes: &[u8], words: Words) -> u64 {
    let little = cfg!(target_endian = "little") != words.swapped;
    let add = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
    if little {
        bytes.iter().rev().fold(0, add)
    } else {
        bytes.iter().fold(0, add)
    }
}

/// Runs a job to its end: in one go, or left and taken up again as often as can be.
pub fn run(mut step: impl FnMut(Instant) -> bool, interrupted: bool) {
    if !interrupted {
        assert!(step(Instant::now() + Duration::from_secs(3600)), "left before the deadline");
        return;
    }
    for _ in 0..20_000 {
        if step(Instant::now()) {
            return;
        }
    }
    panic!("no end in sight: a step makes no progress");
}

/// Blocks that an index takes, or must refuse.
pub struct Blocks {
    pub address: Vec<u64>,
    pub size: Vec<u64>,
}

impl Blocks {
    pub fn read(from: &mut Reader, base: u64) -> Self {
        let (mut address, mut size, mut at) = (Vec::new(), Vec::new(), base);
        for _ in 0..from.upto(15) {
            let byte = from.byte();
            at = at.wrapping_add(match byte & 15 {
                0..=9 => 0,
                10 => 1,
                11 => 8,
                12 => 1 << 12,
                13 => 1 << 24,
                14 => from.hostile(),
                _ => 0u64.wrapping_sub(8),
            });
            let bytes = match byte >> 4 {
                0..=3 => 16,
                4 | 5 => 8,
                6 | 7 => 24,
                8 => 0,
                9 => 1,
                10 => 13,
                11 => 5000,
                12 => 1 << 26,
                13 => 1 << 39,
                14 => u64::MAX - at,
                _ => from.hostile(),
            };
            address.push(at);
            size.push(bytes);
            at = at.wrapping_add(bytes.max(1));
        }
        Blocks { address, size }
    }

    /// Whether they are sorted and disjoint, and inside the address space.
    pub fn sound(&self) -> bool {
        let ends: Vec<u128> = (0..self.address.len()).map(|row| self.end(row)).collect();
        ends.iter().all(|&end| end <= 1 << 64)
            && (1..ends.len()).all(|row| ends[row - 1] <= u128::from(self.address[row]))
    }

    /// The address behind a block, which has at least one byte here.
    pub fn end(&self, row: usize) -> u128 {
        u128::from(self.address[row]) + u128::from(self.size[row].max(1))
    }

    /// The block that holds an address, by looking at each.
    pub fn find(&self, address: u64) -> Option<usize> {
        (0..self.address.len()).find(|&row| address >= self.address[row] && u128::from(address) < self.end(row))
    }

    /// Returns the block that a word leads to, as it stands or revealed, and whether into the middle.
    pub fn follow(&self, stored: u64, place: u64, pointers: Pointers) -> Option<(usize, bool)> {
        let ways = [stored, stored ^ (place >> 12)];
        let lead = |&way: &u64| self.find(way & !pointers.clear).map(|row| (row, way & !pointers.clear));
        let (row, value) = ways.iter().take(1 + usize::from(pointers.mangled)).find_map(lead)?;
        let into = value - self.address[row];
        let size = u128::from(self.size[row]);
        let asked = u128::from(into) * u128::from(pointers.part);
        let part = pointers.part != 0 && asked <= size && size - asked < 16 + size / 32;
        Some((row, into != 0 && !pointers.headers.contains(&into) && !part))
    }
}

/// A graph that kernels take, or must refuse.
pub struct Edges {
    pub first: Vec<u64>,
    pub to: Vec<u32>,
    pub interior: Vec<u8>,
}

impl Edges {
    /// Up to twelve rows of up to five edges each; now and then something that is no graph.
    pub fn read(from: &mut Reader) -> Self {
        let rows = from.upto(12);
        let mut edges = Edges { first: vec![0], to: Vec::new(), interior: Vec::new() };
        for _ in 0..rows {
            for _ in 0..from.upto(5) {
                let byte = from.byte();
                edges.to.push(u32::from(byte & 63) % rows as u32);
                edges.interior.push(byte >> 6 & u8::from(byte >> 7 != 0));
            }
            edges.first.push(edges.to.len() as u64);
        }
        if from.one_in(16) {
            match from.upto(3) {
                0 => drop(edges.first.pop()),
                1 => edges.interior.push(0),
                2 if !edges.to.is_empty() => edges.to[0] = from.hostile() as u32,
                _ => {
                    let at = from.upto(rows as u8);
                    edges.first[at] = from.hostile();
                }
            }
        }
        edges
    }

    /// The graph as kernels take it, or None where they must not; both are held to a check of our own.
    pub fn graph(&self) -> Option<Graph<'_>> {
        let rows = self.first.len().wrapping_sub(1);
        let sound = self.first.first() == Some(&0)
            && self.first.last() == Some(&(self.to.len() as u64))
            && (1..self.first.len()).all(|row| self.first[row - 1] <= self.first[row])
            && self.interior.len() == self.to.len()
            && self.to.iter().all(|&to| (to as usize) < rows);
        let graph = Graph::new(&self.first, &self.to, &self.interior);
        assert_eq!(graph.is_some(), sound);
        graph
    }

    /// All edges of a sound graph: from, to, whether into the middle.
    pub fn all(&self) -> Vec<(usize, usize, bool)> {
        let row = |row: usize| {
            let edges = self.first[row] as usize..self.first[row + 1] as usize;
            edges.map(move |at| (row, self.to[at] as usize, self.interior[at] != 0))
        };
        (0..self.first.len() - 1).flat_map(row).collect()
    }
}

/// Which of some nodes can be reached from some, by a closure over all edges.
pub fn reached(nodes: usize, starts: &[usize], edges: &[(usize, usize)]) -> Vec<bool> {
    let mut seen = vec![false; nodes];
    starts.iter().for_each(|&start| seen[start] = true);
    loop {
        let before = seen.clone();
        edges.iter().for_each(|&(from, to)| seen[to] |= seen[from]);
        if seen == before {
            return seen;
        }
    }
}
