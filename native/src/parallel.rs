//! Work spread over the processor's cores: parts in order, each by one thread, until a deadline.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crate::fallible::{Error, Result};
use crate::sized;

/// Items for which a thread of their own pays.
pub(crate) const PART: usize = sized(1 << 13, 4);

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
        0 => cores().min(MOST_THREADS),
        wanted => wanted.min(MOST_THREADS),
    }
}

/// Returns how many cores there are for us. That is found out once: the standard library takes memory for it, and aborts
/// where there is none.
pub fn cores() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let found = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            KNOWN.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    }
}

/// Lets threads run the parts until all are done, the deadline has passed, or one fails; returns whether all are done.
///
/// `run` works at a part until that is done or the deadline has passed; it returns whether it is done, and goes on with
/// it when it is called again. `done` says which parts are known to be done.
pub fn run_parts<P: Send>(
    parts: &mut [P],
    done: &mut [bool],
    deadline: Instant,
    run: impl Fn(&mut P, Instant) -> Result<bool> + Sync,
) -> Result<bool> {
    let open = done.iter().filter(|one| !**one).count();
    let queue = Mutex::new(parts.iter_mut().zip(done.iter_mut()).filter(|(_, done)| !**done));
    let failed = AtomicBool::new(false);
    run_together(threads().min(open), || {
        while let Some((part, done)) = taken(&queue) {
            match run(part, deadline) {
                Ok(end) => *done = end,
                Err(_) => failed.store(true, Ordering::Relaxed),
            }
            if failed.load(Ordering::Relaxed) || Instant::now() >= deadline {
                return;
            }
        }
    });
    if failed.into_inner() {
        return Err(Error::OutOfMemory); // nothing else can be wrong with a part
    }
    Ok(done.iter().all(|one| *one))
}

/// Lets threads take the parts of so many items, until there are none left.
pub(crate) fn share<T>(items: usize, parts: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let queue = Mutex::new(parts);
    run_together(threads().min(1 + items / PART), || {
        while let Some(part) = taken(&queue) {
            work(part);
        }
    });
}

fn taken<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().ok()?.next() // another thread's panic: the boundary tells
}

/// Lets so many threads do the same work, this one among them; where no more can be had, fewer.
///
/// They are the C library's: to start one of its own, the standard library takes memory, and aborts where there is none.
pub(crate) fn run_together<W: Fn() + Sync>(workers: usize, work: W) {
    if workers <= 1 {
        return work();
    }
    let _quiet = SignalsBlocked::new();
    let call = Call { work: &work, panicked: AtomicBool::new(false) };
    let mut others = [None; MOST_THREADS];
    for other in others.iter_mut().take(workers - 1) {
        *other = system::start(&call);
    }
    let own = catch_unwind(AssertUnwindSafe(&work));
    others.iter().flatten().for_each(|&other| system::join(other));
    if let Err(panic) = own {
        resume_unwind(panic);
    }
    assert!(!call.panicked.into_inner(), "another thread panicked");
}

/// What all threads do, and whether one of them panicked.
struct Call<'a, W> {
    work: &'a W,
    panicked: AtomicBool,
}

#[cfg(unix)]
mod system {
    use super::{catch_unwind, AssertUnwindSafe, Call, Ordering};
    use std::os::raw::{c_int, c_void};
    use std::ptr::null_mut;

    type Thread = usize; // pthread_t: a number or a pointer
    type Attributes = [u64; 16]; // pthread_attr_t is no larger anywhere

    const STACK: usize = 2 << 20; // bytes; as the standard library has it

    extern "C" {
        fn pthread_create(
            thread: *mut Thread,
            attributes: *const Attributes,
            start: extern "C" fn(*mut c_void) -> *mut c_void,
            argument: *mut c_void,
        ) -> c_int;
        fn pthread_join(thread: Thread, answer: *mut *mut c_void) -> c_int;
        #[cfg(not(miri))]
        fn pthread_attr_init(attributes: *mut Attributes) -> c_int;
        #[cfg(not(miri))]
        fn pthread_attr_setstacksize(attributes: *mut Attributes, bytes: usize) -> c_int;
        #[cfg(not(miri))]
        fn pthread_attr_destroy(attributes: *mut Attributes) -> c_int;
    }

    /// Starts a thread, or not; one that is must be joined before the call goes.
    #[cfg(not(miri))]
    pub(super) fn start<W: Fn() + Sync>(call: &Call<W>) -> Option<Thread> {
        let mut attributes = [0; 16];
        unsafe {
            if pthread_attr_init(&mut attributes) != 0 {
                return None;
            }
            pthread_attr_setstacksize(&mut attributes, STACK);
            let started = started(call, &attributes);
            pthread_attr_destroy(&mut attributes);
            started
        }
    }

    #[cfg(miri)]
    pub(super) fn start<W: Fn() + Sync>(call: &Call<W>) -> Option<Thread> {
        let _ = STACK;
        unsafe { started(call, std::ptr::null()) }
    }

    unsafe fn started<W: Fn() + Sync>(call: &Call<W>, attributes: *const Attributes) -> Option<Thread> {
        let mut thread = 0;
        let argument = call as *const Call<W> as *mut c_void;
        match unsafe { pthread_create(&mut thread, attributes, enter::<W>, argument) } {
            0 => Some(thread),
            _ => None,
        }
    }

    pub(super) fn join(thread: Thread) {
        unsafe { pthread_join(thread, null_mut()) };
    }

    extern "C" fn enter<W: Fn() + Sync>(call: *mut c_void) -> *mut c_void {
        let call = unsafe { &*(call as *const Call<W>) };
        if catch_unwind(AssertUnwindSafe(call.work)).is_err() {
            call.panicked.store(true, Ordering::Relaxed);
        }
        null_mut()
    }
}

#[cfg(not(unix))]
mod system {
    pub(super) fn start<W>(_: &super::Call<W>) -> Option<()> {
        None
    }

    pub(super) fn join(_: ()) {}
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

    fn third(count: &mut u32, _: Instant) -> Result<bool> {
        *count += 1;
        Ok(*count == 3)
    }

    #[test]
    fn parts_run_until_all_are_done() {
        let (mut parts, mut done) = ([0; 100], [false; 100]);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(run_parts(&mut parts, &mut done, later, third), Ok(false));
        assert_eq!(run_parts(&mut parts, &mut done, later, third), Ok(false));
        assert_eq!(run_parts(&mut parts, &mut done, later, third), Ok(true));
        assert_eq!(parts, [3; 100]);
    }

    #[test]
    fn a_deadline_ends_a_round() {
        let (mut parts, mut done) = ([2; 100], [false; 100]);
        assert_eq!(run_parts(&mut parts, &mut done, Instant::now(), third), Ok(false));
        assert!(done.contains(&true));
    }

    #[test]
    fn a_part_without_memory_ends_all() {
        let (mut parts, mut done) = ([0; 1000], [false; 1000]);
        let later = Instant::now() + Duration::from_secs(60);
        let fails = |_: &mut u32, _| Err(Error::OutOfMemory);
        assert_eq!(run_parts(&mut parts, &mut done, later, fails), Err(Error::OutOfMemory));
        assert_eq!(done, [false; 1000]);
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
        for which in 0..4 {
            let number = AtomicUsize::new(0);
            let work = || assert_ne!(number.fetch_add(1, Ordering::Relaxed), which);
            assert!(catch_unwind(AssertUnwindSafe(|| run_together(4, work))).is_err());
            assert_eq!(number.into_inner(), 4);
        }
    }
}
