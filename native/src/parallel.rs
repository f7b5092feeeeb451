//! Work spread over the processor's cores: parts in order, each by one thread, until a deadline.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// More threads than this gain nothing: memory is the limit.
const MOST_THREADS: usize = 16;

thread_local! {
    static WANTED: Cell<usize> = const { Cell::new(0) };
}

/// Sets how many threads work for this one, itself among them; 0 takes as many as there are cores.
pub fn set_threads(threads: usize) {
    WANTED.with(|wanted| wanted.set(threads));
}

/// Returns how many threads work for this one.
pub fn threads() -> usize {
    match WANTED.with(Cell::get) {
        0 => thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS),
        wanted => wanted.min(MOST_THREADS),
    }
}

/// A piece of work that can be left and taken up again.
pub trait Part: Send {
    /// Works until it is done or the deadline has passed; returns whether it is done.
    fn run(&mut self, deadline: Instant) -> bool;
}

/// Lets threads run the parts until all are done or the deadline has passed; returns whether all are.
///
/// `done` counts the parts from the first on that are known to be done.
pub fn run_parts<P: Part>(parts: &mut [P], done: &mut [bool], deadline: Instant) -> bool {
    let open = done.iter().filter(|one| !**one).count();
    let queue = Mutex::new(parts.iter_mut().zip(done.iter_mut()).filter(|(_, done)| !**done));
    run_together(threads().min(open), || work(&queue, deadline));
    done.iter().all(|one| *one)
}

fn work<'a, P: Part + 'a>(queue: &Mutex<impl Iterator<Item = (&'a mut P, &'a mut bool)>>, deadline: Instant) {
    loop {
        let next = match queue.lock() {
            Ok(mut parts) => parts.next(),
            Err(_) => None, // another thread panicked: the boundary tells
        };
        match next {
            Some((part, done)) => *done = part.run(deadline),
            None => return,
        }
        if Instant::now() >= deadline {
            return;
        }
    }
}

/// Lets so many threads do the same work, this one among them; where no more can be had, fewer.
pub(crate) fn run_together(workers: usize, work: impl Fn() + Sync) {
    if workers <= 1 {
        return work();
    }
    let _quiet = SignalsBlocked::new();
    thread::scope(|scope| {
        let others: Vec<_> =
            (1..workers).filter_map(|_| thread::Builder::new().spawn_scoped(scope, &work).ok()).collect();
        work();
        for other in others {
            // At the end of a scope threads have done their work; only one that was joined is gone.
            if let Err(panic) = other.join() {
                resume_unwind(panic);
            }
        }
    });
}

/// While it lives, threads that are started get no signals: these are for the debugger's own.
struct SignalsBlocked {
    #[cfg(all(target_os = "linux", not(miri)))]
    before: SignalSet,
}

#[cfg(all(target_os = "linux", not(miri)))]
type SignalSet = [u64; 16]; // sigset_t of glibc and musl

#[cfg(all(target_os = "linux", not(miri)))]
extern "C" {
    fn sigfillset(set: *mut SignalSet) -> i32;
    fn pthread_sigmask(how: i32, set: *const SignalSet, before: *mut SignalSet) -> i32;
}

#[cfg(all(target_os = "linux", not(miri)))]
const SIG_SETMASK: i32 = if cfg!(any(target_arch = "mips", target_arch = "mips64")) { 3 } else { 2 };

#[cfg(all(target_os = "linux", not(miri)))]
impl SignalsBlocked {
    fn new() -> Self {
        let (mut all, mut before) = ([0; 16], [0; 16]);
        unsafe {
            sigfillset(&mut all);
            pthread_sigmask(SIG_SETMASK, &all, &mut before);
        }
        SignalsBlocked { before }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        unsafe { pthread_sigmask(SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
impl SignalsBlocked {
    fn new() -> Self {
        SignalsBlocked {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    struct Counting(u32);

    impl Part for Counting {
        fn run(&mut self, _: Instant) -> bool {
            self.0 += 1;
            self.0 == 3
        }
    }

    #[test]
    fn parts_run_until_all_are_done() {
        let mut parts: Vec<_> = (0..100).map(|_| Counting(0)).collect();
        let mut done = vec![false; 100];
        let later = Instant::now() + Duration::from_secs(60);
        assert!(!run_parts(&mut parts, &mut done, later));
        assert!(!run_parts(&mut parts, &mut done, later));
        assert!(run_parts(&mut parts, &mut done, later));
        assert!(parts.iter().all(|part| part.0 == 3));
    }

    #[test]
    fn a_deadline_ends_a_round() {
        let mut parts: Vec<_> = (0..100).map(|_| Counting(2)).collect();
        let mut done = vec![false; 100];
        assert!(!run_parts(&mut parts, &mut done, Instant::now()));
        assert!(done.iter().any(|one| *one));
    }

    #[test]
    fn what_one_thread_wants_is_not_what_another_does() {
        set_threads(1);
        assert_eq!(threads(), 1);
        thread::spawn(|| set_threads(3)).join().unwrap();
        assert_eq!(threads(), 1);
        set_threads(MOST_THREADS + 1);
        assert_eq!(threads(), MOST_THREADS);
        set_threads(0);
    }

    #[test]
    fn a_panic_of_any_thread_is_handed_on() {
        let number = AtomicUsize::new(0);
        let work = || assert_ne!(number.fetch_add(1, Ordering::Relaxed), 2);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run_together(4, work))).is_err());
    }
}
