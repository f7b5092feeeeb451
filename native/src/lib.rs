//! The hot loops of gdbext over raw memory.
//!
//! Everything here works on bytes that may be damaged or hostile: no kernel panics, follows an address without a check,
//! or takes memory in proportion to a number that it has read. The Python package holds the same functions in numpy as
//! the reference; property tests hold both equal. Where there is no memory, that is an error: see [`fallible`]. [`ffi`] and
//! [`ffi_graph`] are the only parts with unsafe code, but for prefetches and the start of threads.

#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod breadth;
pub mod chains;
pub mod chunks;
pub mod columns;
pub mod components;
pub mod digraph;
pub mod dominators;
pub mod edges;
pub mod fallible;
pub mod ffi;
pub mod ffi_graph;
pub mod gather;
pub mod graph;
pub mod memory;
pub mod parallel;
pub mod retained;
pub mod scalars;
pub mod scan;
pub mod tally;

/// How large parts and steps are. Under a fuzzer (cargo fuzz sets the name) they are so small that short inputs cross
/// their bounds.
#[allow(unknown_lints, unexpected_cfgs)]
pub(crate) const fn sized(usual: usize, fuzzed: usize) -> usize {
    if cfg!(fuzzing) {
        fuzzed
    } else {
        usual
    }
}
