//! Linked chains, many at once: each followed from its first node to where it ends, and why.
//!
//! Cycles are found by Brent's algorithm (R. P. Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980);
//! where one begins and how long it is, is then read off the nodes.

use std::time::Instant;

use crate::fallible::{filled, push, with_room, Result};
use crate::memory::{prefetch, Spans, Words};
use crate::parallel::run_parts;
use crate::sized;

/// Why a chain ended; the numbers are those of `gdbext.kernels.chains`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    Null = 0,
    Head = 1,
    Sentinel = 2,
    Limit = 4,
    Cycle = 5,
    Outside = 6,
    Misaligned = 7,
    Forbidden = 8,
}

/// How a link becomes an address; `gdbext.kernels.chains.LinkRules` says what each means.
pub struct Rules<'a> {
    pub words: Words,
    pub next: u64,
    pub mask: u64,
    pub mangled: bool,
    pub relative: u64,
    pub end_bits: u64,
    pub leaf_bits: u64,
    pub alignment: u64,
    pub sentinels: &'a [u64],
    pub forbidden: &'a [u64],
}

impl Rules<'_> {
    pub(crate) fn plain(&self) -> bool {
        !self.mangled && self.mask | self.leaf_bits | self.relative == 0
    }

    /// What a stored link leads to; values that end a chain as they are.
    #[inline(always)]
    pub(crate) fn decode(&self, link: u64, node: u64) -> u64 {
        let place = node.wrapping_add(self.next);
        self.resolve(if self.mangled { link ^ (place >> 12) } else { link })
    }

    /// What the link of a head leads to: it is never mangled.
    #[inline(always)]
    pub(crate) fn decode_head(&self, link: u64) -> u64 {
        if self.mask | self.leaf_bits | self.relative == 0 {
            return link;
        }
        self.resolve(link)
    }

    #[inline(always)]
    fn resolve(&self, link: u64) -> u64 {
        if link & self.end_bits != 0 || self.sentinels.contains(&link) || self.forbidden.contains(&link) {
            return link;
        }
        let word = self.words.mask();
        if link & word & !(self.mask | self.leaf_bits) == 0 {
            return 0;
        }
        (link & word & !(self.mask & !self.leaf_bits)).wrapping_add(self.relative) & word
    }
}

/// The chains of one call.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub firsts: &'a [u64],
    /// A node that ends each, or none for all.
    pub stops: Option<&'a [u64]>,
    /// Nodes of each after which it ends with [`End::Limit`], or none for all.
    pub most: Option<&'a [u64]>,
}

const AT_ONCE: usize = sized(1 << 15, 5); // chains of a part at most
const PARTS: usize = sized(64, 3); // where there are fewer chains: a few may be long
const LONGEST: u64 = u32::MAX as u64; // nodes of a chain; one that is longer ends with a limit, and can be walked on
const AHEAD: usize = sized(32, 2); // chains; nodes that lie anywhere in memory take long to come
const PATIENCE: u64 = sized(1 << 10, 2) as u64; // links and chains between two looks at the clock

/// A walk along chains that can be left and taken up again.
///
/// Each part has its share of the nodes that are allowed. Those that it is not enough for go on one by one with what the
/// others have left: which chains a bound cuts does not depend on threads.
pub struct Job<'a> {
    parts: Vec<Chunk<'a>>,
    done: Vec<bool>,
    total: u64,
    finished: usize,
}

impl<'a> Job<'a> {
    /// Prepares the walk. `total` bounds the nodes of all chains: those still going then end with [`End::Limit`].
    pub fn new(memory: &'a Spans<'a>, heads: Heads<'a>, rules: &'a Rules<'a>, total: u64) -> Result<Self> {
        let chains = heads.firsts.len();
        // What a part is depends on the chains alone, not on threads.
        let at_once = ((chains + PARTS - 1) / PARTS).clamp(1, AT_ONCE);
        let number = (chains + at_once - 1) / at_once;
        let share = total / number.max(1) as u64;
        let mut parts = with_room(number)?;
        for part in 0..number {
            let rows = (part * at_once, chains.min((part + 1) * at_once));
            push(&mut parts, Chunk::new(memory, heads, rules, rows, share)?)?;
        }
        Ok(Job { done: filled(number, false)?, parts, total, finished: 0 })
    }

    /// Walks until the deadline; returns whether it has come to an end.
    pub fn run(&mut self, deadline: Instant) -> Result<bool> {
        if self.finished == 0 && !run_parts(&mut self.parts, &mut self.done, deadline, Chunk::run)? {
            return Ok(false);
        }
        while let Some(part) = self.parts.get(self.finished) {
            if part.starved {
                let left = self.total.saturating_sub(self.nodes() as u64);
                let part = &mut self.parts[self.finished];
                part.left = left;
                part.last_round = true;
                if !part.run(deadline)? {
                    return Ok(false);
                }
            }
            self.finished += 1;
        }
        Ok(true)
    }

    /// How many chains there are.
    pub fn chains(&self) -> usize {
        self.parts.last().map_or(0, |part| part.rows.1)
    }

    /// The nodes of all chains.
    pub fn nodes(&self) -> usize {
        self.parts.iter().map(|part| part.nodes.len()).sum()
    }

    /// Writes what was found; each slice has one place for a chain, `nodes` has [`Job::nodes`].
    ///
    /// Of `ends`, `last` and `cycles` only what is not 0 is written: most chains end in null, and memory that is not
    /// touched costs nothing.
    pub fn write(&self, lengths: &mut [u64], ends: &mut [u8], last: &mut [u64], cycles: &mut [u64], nodes: &mut [u64]) {
        let mut node = 0;
        for part in &self.parts {
            let rows = &mut lengths[part.rows.0..part.rows.0 + part.lengths.len()];
            for (to, &length) in rows.iter_mut().zip(&part.lengths) {
                *to = length.into();
            }
            for one in &part.others {
                let row = part.rows.0 + one.chain as usize;
                ends[row] = one.end as u8;
                last[row] = one.last;
                cycles[row] = one.cycle;
            }
            nodes[node..node + part.nodes.len()].copy_from_slice(&part.nodes);
            node += part.nodes.len();
        }
    }
}

/// A chain that did not end in null: which of its part's, and how it ended.
struct Other {
    chain: u32,
    end: End,
    last: u64,
    cycle: u64,
}

/// Neighbouring chains, walked one after the other.
struct Chunk<'a> {
    memory: &'a Spans<'a>,
    rules: &'a Rules<'a>,
    heads: Heads<'a>,
    rows: (usize, usize),
    left: u64,
    starved: bool,
    last_round: bool,
    lengths: Vec<u32>,
    others: Vec<Other>,
    nodes: Vec<u64>,
    walk: Option<Walk>,
    hint: usize,
}

/// Where a chain that was left goes on.
#[derive(Clone, Copy)]
struct Walk {
    node: u64,
    begin: usize,
    hare: u64,
    turn: u64,
}

/// What a chain came to, or that the time is up.
enum Step {
    Ended(End, u64),
    Left(Walk),
    Starved,
}

impl<'a> Chunk<'a> {
    /// Walks until the deadline; returns whether it has come to an end, or to that of its nodes.
    fn run(&mut self, deadline: Instant) -> Result<bool> {
        let mut worked = 0;
        while self.rows.0 + self.lengths.len() < self.rows.1 {
            let row = self.rows.0 + self.lengths.len();
            let walk = match self.walk.take() {
                Some(walk) => walk,
                None => self.begin(row),
            };
            match self.follow(row, walk, deadline)? {
                Step::Ended(end, last) => {
                    worked += (self.nodes.len() - walk.begin) as u64 + 1;
                    self.close(walk.begin, end, last)?;
                }
                Step::Left(walk) => {
                    self.walk = Some(walk);
                    return Ok(self.starved && !self.last_round);
                }
                Step::Starved => return Ok(true), // told above as one that was left
            }
            if worked >= PATIENCE {
                if Instant::now() >= deadline {
                    return Ok(self.rows.0 + self.lengths.len() == self.rows.1);
                }
                worked = 0;
            }
        }
        Ok(true)
    }

    fn new(
        memory: &'a Spans<'a>,
        heads: Heads<'a>,
        rules: &'a Rules<'a>,
        rows: (usize, usize),
        left: u64,
    ) -> Result<Self> {
        let room = rows.1 - rows.0;
        Ok(Chunk {
            memory,
            rules,
            heads,
            rows,
            left,
            starved: false,
            last_round: false,
            lengths: with_room(room)?,
            others: Vec::new(),
            nodes: Vec::new(),
            walk: None,
            hint: 0,
        })
    }

    fn begin(&mut self, row: usize) -> Walk {
        self.fetch(row);
        let first = self.heads.firsts[row];
        Walk { node: first, begin: self.nodes.len(), hare: first, turn: 1 }
    }

    /// Has the first nodes of chains fetched that come soon, and of those that come sooner the second ones too.
    fn fetch(&mut self, row: usize) {
        let coming = &self.heads.firsts[row..self.rows.1];
        if let Some(&later) = coming.get(2 * AHEAD) {
            if later != 0 {
                prefetch(self.memory.from(later.wrapping_add(self.rules.next), &mut self.hint));
            }
        }
        if let Some(&sooner) = coming.get(AHEAD) {
            if sooner != 0 {
                let place = sooner.wrapping_add(self.rules.next);
                if let Some(link) = self.memory.word(place, self.rules.words, &mut self.hint) {
                    let second = self.rules.decode(link, sooner);
                    if second != 0 {
                        prefetch(self.memory.from(second.wrapping_add(self.rules.next), &mut self.hint));
                    }
                }
            }
        }
    }

    /// Follows one chain.
    fn follow(&mut self, row: usize, walk: Walk, deadline: Instant) -> Result<Step> {
        if walk.node == 0 {
            return Ok(Step::Ended(End::Null, 0));
        }
        let rules = self.rules;
        let (plain, odd) = (rules.plain(), rules.end_bits | rules.leaf_bits | (rules.alignment - 1));
        let stop = self.heads.stops.map(|stops| stops[row]);
        let most = self.heads.most.map_or(u64::MAX, |most| most[row]).min(LONGEST);
        let Walk { mut node, begin, mut hare, mut turn } = walk;
        let mut length = (self.nodes.len() - begin) as u64;
        loop {
            let usual = node != 0 && node & odd == 0 && Some(node) != stop && length < most && self.left > 0;
            if !usual || rules.forbidden.contains(&node) || rules.sentinels.contains(&node) {
                match self.judge(node, stop, length >= most)? {
                    Some(Step::Starved) => {
                        self.starved = true;
                        return Ok(Step::Left(Walk { node, begin, hare, turn }));
                    }
                    Some(step) => return Ok(step),
                    None => {}
                }
            }
            let link = match self.memory.word(node.wrapping_add(rules.next), rules.words, &mut self.hint) {
                Some(link) => link,
                None => return Ok(Step::Ended(End::Outside, node)),
            };
            push(&mut self.nodes, node)?;
            self.left -= 1;
            length += 1;
            node = if plain { link } else { rules.decode(link, node) };
            if node == hare {
                return Ok(Step::Ended(End::Cycle, node));
            }
            if length == turn {
                hare = node;
                turn *= 2;
            }
            if length % PATIENCE == 0 && Instant::now() >= deadline {
                return Ok(Step::Left(Walk { node, begin, hare, turn }));
            }
        }
    }

    /// Returns why a chain ends before `node`, for the first reason that applies, or None.
    fn judge(&mut self, node: u64, stop: Option<u64>, full: bool) -> Result<Option<Step>> {
        let rules = self.rules;
        let leaf = node & rules.leaf_bits != 0;
        let end = if node == 0 {
            return Ok(Some(Step::Ended(End::Null, 0)));
        } else if rules.forbidden.contains(&node) {
            End::Forbidden
        } else if node & rules.end_bits != 0 {
            End::Sentinel
        } else if Some(node) == stop {
            End::Head
        } else if rules.sentinels.contains(&node) {
            End::Sentinel
        } else if full {
            End::Limit
        } else if leaf && !self.memory.holds(node) {
            End::Outside
        } else if !leaf && node & (rules.alignment - 1) != 0 {
            End::Misaligned
        } else if self.left == 0 && !self.last_round {
            return Ok(Some(Step::Starved));
        } else if self.left == 0 {
            End::Limit
        } else if leaf {
            push(&mut self.nodes, node & !rules.mask)?;
            self.left -= 1;
            return Ok(Some(Step::Ended(End::Null, 0)));
        } else {
            return Ok(None);
        };
        Ok(Some(Step::Ended(end, node)))
    }

    /// Notes a chain's end; one that has run into its own nodes is cut where they begin again.
    fn close(&mut self, begin: usize, end: End, last: u64) -> Result<()> {
        let (mut end, mut last, mut cycle) = (end, last, 0);
        if end == End::Cycle || end == End::Limit {
            let nodes = &self.nodes[begin..];
            if let Some(latest) = nodes.iter().rposition(|&node| node == last) {
                let period = nodes.len() - latest;
                let first = first_repeated(nodes, period, last);
                end = End::Cycle;
                last = nodes[first];
                cycle = period as u64;
                // Given back, or it would show when the walk was left: who goes on counts what is there.
                self.left += (nodes.len() - first - period) as u64;
                self.nodes.truncate(begin + first + period);
            }
        }
        if end != End::Null {
            push(&mut self.others, Other { chain: self.lengths.len() as u32, end, last, cycle })?;
        }
        push(&mut self.lengths, (self.nodes.len() - begin) as u32)
    }
}

/// Returns the first place whose node comes again a period later, `last` standing behind the nodes.
fn first_repeated(nodes: &[u64], period: usize, last: u64) -> usize {
    (0..=nodes.len() - period)
        .find(|&at| nodes.get(at + period).copied().unwrap_or(last) == nodes[at])
        .unwrap_or(nodes.len() - period)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory::Span;
    use std::time::Duration;

    /// Plain forward links at the beginning of nodes.
    pub(crate) fn rules<'a>() -> Rules<'a> {
        Rules {
            words: Words { size: 8, swapped: false },
            next: 0,
            mask: 0,
            mangled: false,
            relative: 0,
            end_bits: 0,
            leaf_bits: 0,
            alignment: 1,
            sentinels: &[],
            forbidden: &[],
        }
    }

    type Found = (Vec<u64>, Vec<u8>, Vec<u64>, Vec<u64>, Vec<u64>);

    /// Memory at 0x1000 with one link in each word.
    fn walked(links: &[u64], heads: Heads, rules: &Rules, total: u64) -> Found {
        walked_in_steps(links, heads, rules, total, Duration::from_secs(60))
    }

    fn walked_in_steps(links: &[u64], heads: Heads, rules: &Rules, total: u64, time: Duration) -> Found {
        let bytes: Vec<u8> = links.iter().flat_map(|link| link.to_ne_bytes()).collect();
        let spans = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let mut job = Job::new(&spans, heads, rules, total).unwrap();
        while !job.run(Instant::now() + time).unwrap() {}
        let chains = heads.firsts.len();
        let (mut lengths, mut ends, mut last) = (vec![0; chains], vec![0; chains], vec![0; chains]);
        let (mut cycles, mut nodes) = (vec![0; chains], vec![0; job.nodes()]);
        job.write(&mut lengths, &mut ends, &mut last, &mut cycles, &mut nodes);
        (lengths, ends, last, cycles, nodes)
    }

    fn heads(firsts: &[u64]) -> Heads<'_> {
        Heads { firsts, stops: None, most: None }
    }

    #[test]
    fn chains_to_null_and_outside() {
        let found = walked(&[0x1008, 0x1010, 0, 0x9000], heads(&[0x1000, 0, 0x1018]), &rules(), u64::MAX);
        assert_eq!(found.0, [3, 0, 1]);
        assert_eq!(found.1, [End::Null as u8, End::Null as u8, End::Outside as u8]);
        assert_eq!(found.2, [0, 0, 0x9000]);
        assert_eq!(found.4, [0x1000, 0x1008, 0x1010, 0x1018]);
    }

    #[test]
    fn a_rho_has_each_node_once() {
        let found = walked(&[0x1008, 0x1010, 0x1018, 0x1008], heads(&[0x1000]), &rules(), u64::MAX);
        assert_eq!((found.0[0], found.1[0], found.2[0], found.3[0]), (4, End::Cycle as u8, 0x1008, 3));
    }

    #[test]
    fn limits_of_one_chain_and_of_all() {
        let links = [0x1008, 0x1010, 0x1018, 0];
        let most = Heads { firsts: &[0x1000], stops: None, most: Some(&[2]) };
        let found = walked(&links, most, &rules(), u64::MAX);
        assert_eq!((found.0[0], found.1[0], found.2[0]), (2, End::Limit as u8, 0x1010));
        let found = walked(&links, heads(&[0x1000]), &rules(), 3);
        assert_eq!((found.0[0], found.1[0], found.2[0]), (3, End::Limit as u8, 0x1018));
        let again = Heads { firsts: &[0x1000], stops: None, most: Some(&[2]) };
        let found = walked(&[0x1008, 0x1000], again, &rules(), u64::MAX);
        assert_eq!((found.0[0], found.1[0], found.3[0]), (2, End::Cycle as u8, 2));
    }

    #[test]
    fn ends_by_value() {
        let links = [0x1008, 0x1011, 0xdead, 0x1003];
        let special = Rules { end_bits: 1, ..rules() };
        assert_eq!(walked(&links, heads(&[0x1000]), &special, 99).1, [End::Sentinel as u8]);
        let special = Rules { forbidden: &[0xdead], ..rules() };
        assert_eq!(walked(&links, heads(&[0x1010]), &special, 99).1, [End::Forbidden as u8]);
        let special = Rules { alignment: 8, ..rules() };
        assert_eq!(walked(&links, heads(&[0x1018]), &special, 99).1, [End::Misaligned as u8]);
        let stops = Heads { firsts: &[0x1000], stops: Some(&[0x1008]), most: None };
        assert_eq!(walked(&links, stops, &rules(), 99).1, [End::Head as u8]);
    }

    #[test]
    fn mangled_links_and_leaves() {
        let place = 0x1000u64;
        let mangled = Rules { mangled: true, ..rules() };
        let found = walked(&[0x1008 ^ (place >> 12), 0x1008 >> 12], heads(&[place]), &mangled, 99);
        assert_eq!((found.0[0], found.1[0]), (2, End::Null as u8));
        let leaves = Rules { leaf_bits: 1, mask: 1, ..rules() };
        let found = walked(&[0x1009, 0], heads(&[place]), &leaves, 99);
        assert_eq!((found.0[0], found.4), (2, vec![0x1000, 0x1008]));
    }

    #[test]
    fn what_a_bound_of_all_cuts_does_not_depend_on_interruptions() {
        let (round, straight) = (5000, 3000);
        let mut links: Vec<u64> = (1..=round + straight).map(|row| 0x1000 + 8 * row).collect();
        links[round as usize - 1] = 0x1000;
        *links.last_mut().unwrap() = 0;
        // Twice round the cycle is more than the bound, the nodes of all chains are not. Two chains share a part.
        let mut firsts = vec![0; PARTS + 1];
        firsts[..2].copy_from_slice(&[0x1000, 0x1000 + 8 * round]);
        let total = round + straight + 500;
        let found = walked(&links, heads(&firsts), &rules(), total);
        assert_eq!(found.0[..2], [round, straight]);
        assert_eq!(found, walked_in_steps(&links, heads(&firsts), &rules(), total, Duration::ZERO));
    }

    #[test]
    fn many_chains_are_left_in_time() {
        let length = PATIENCE as usize - 1;
        let bytes: Vec<u8> = (1..=length as u64).flat_map(|row| (0x1000 + 8 * row).to_ne_bytes()).collect();
        let spans = Spans::new(vec![Span { start: 0x1000, bytes: &bytes }]).unwrap();
        let (firsts, rules) = (vec![0x1000; 2000], rules());
        let mut job = Job::new(&spans, heads(&firsts), &rules, u64::MAX).unwrap();
        assert_eq!(job.run(Instant::now()), Ok(false));
        assert!(job.parts.iter().all(|part| part.nodes.len() <= 2 * PATIENCE as usize));
    }
}
