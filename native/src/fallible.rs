//! Memory that the kernels take for themselves: where there is none, that is an error, and no end of the process.
//!
//! The methods of the standard library that abort the process instead are listed in `clippy.toml`; only tests may use
//! them. What has a fixed size and is taken once, as the library is loaded, is no part of this.

use std::collections::TryReserveError;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument cannot be: spans or blocks that overlap or are not sorted, columns that do not fit each other.
    BadArgument,
    /// There is no memory for the work. What was begun cannot be gone on with.
    OutOfMemory,
}

pub type Result<T> = std::result::Result<T, Error>;

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Self {
        Error::OutOfMemory
    }
}

/// Returns an empty vector with room for so many items.
pub fn with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count)?;
    Ok(room)
}

/// Returns so many items, all the same.
#[allow(clippy::disallowed_methods)]
pub fn filled<T: Copy>(count: usize, item: T) -> Result<Vec<T>> {
    let mut all = with_room(count)?;
    all.resize(count, item);
    Ok(all)
}

/// Returns all items of an iterator that knows how many these are.
#[allow(clippy::disallowed_methods)]
pub fn collected<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut all = with_room(items.len())?;
    all.extend(items);
    Ok(all)
}

/// Returns a vector of one item: its place is its own, and stays where it is when the vector is moved.
pub fn kept<T>(item: T) -> Result<Vec<T>> {
    collected(std::iter::once(item))
}

/// Adds an item.
#[inline(always)]
#[allow(clippy::disallowed_methods)]
pub fn push<T>(to: &mut Vec<T>, item: T) -> Result<()> {
    if to.len() == to.capacity() {
        grow(to)?;
    }
    to.push(item);
    Ok(())
}

#[cold]
#[inline(never)]
fn grow<T>(room: &mut Vec<T>) -> Result<()> {
    Ok(room.try_reserve(1)?)
}

/// Adds copies of items.
#[inline]
#[allow(clippy::disallowed_methods)]
pub fn append<T: Copy>(to: &mut Vec<T>, items: &[T]) -> Result<()> {
    to.try_reserve(items.len())?;
    to.extend_from_slice(items);
    Ok(())
}

/// Adds so many zeros.
#[allow(clippy::disallowed_methods)]
pub fn append_zeros(to: &mut Vec<u64>, count: usize) -> Result<()> {
    to.try_reserve(count)?;
    to.resize(to.len() + count, 0);
    Ok(())
}

/// Gives back room that is not needed, as far as there is memory to do so.
#[allow(clippy::disallowed_methods)]
pub fn shrink<T: Copy>(all: &mut Vec<T>) {
    if all.len() < all.capacity() {
        if let Ok(mut exact) = with_room(all.len()) {
            exact.extend_from_slice(all);
            *all = exact;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_can_be_is_an_error() {
        assert_eq!(with_room::<u64>(usize::MAX), Err(Error::OutOfMemory));
        assert_eq!(filled(usize::MAX / 8, 0u64), Err(Error::OutOfMemory));
        assert_eq!(collected((0..usize::MAX).map(|_| 0u64).skip(7)), Err(Error::OutOfMemory));
    }

    #[test]
    fn room_that_is_not_needed_is_given_back() {
        let mut all = with_room(100).unwrap();
        (0..9).for_each(|item| push(&mut all, item).unwrap());
        append(&mut all, &[9, 10]).unwrap();
        shrink(&mut all);
        assert_eq!((all.len(), all.capacity()), (11, 11));
        assert_eq!(all, (0..11).collect::<Vec<_>>());
    }
}
