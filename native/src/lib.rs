//! The hot loops of gdbext over raw memory.
//!
//! Everything here works on bytes that may be damaged or hostile: no kernel panics, follows an address without a check,
//! or takes memory in proportion to a number that it has read. The Python package holds the same functions in numpy as
//! the reference; property tests hold both equal. [`ffi`] is the only part with unsafe code, but for a prefetch and the
//! signal mask of threads.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod chains;
pub mod chunks;
pub mod columns;
pub mod ffi;
pub mod graph;
pub mod memory;
pub mod parallel;
pub mod scan;

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
