/* Threads that wait for each other, in every way that pthreads have.
 *
 * --mode zoo (default): a thread for each primitive, all held by main.
 *        abba, ring: two and three threads that each hold what the next one wants.
 *        self: a thread takes a normal mutex twice.
 *        lost, lost-robust: a thread ends holding a mutex, and two others wait for it.
 *        convoy: eight threads wait, through two locks, for one that sleeps.
 *        join: two threads join each other.
 *        lonely: three threads wait for a condition that nobody is left to signal.
 *        readers: main reads, one writer waits.
 *        starved: the same with a lock that prefers writers: two later readers wait behind the writer.
 *        zeroed: two threads spin at a lock that was never initialised.
 *        abandoned: main too waits for an end that depends on a signal that nobody is left to send.
 *        destroyed, contradicting, overwritten: the mutex that a thread waits for loses its kind, its word, both.
 *        restarted: timed waits that were interrupted once, so that the kernel shows restart_syscall.
 * --healthy: the same primitives, busy but live: threads that take turns at a mutex and a spinlock, a semaphore
 *        and a condition variable as queues, a read-write lock with more reads than writes.
 *
 * The truth lists each waiting thread with what it waits for, who holds it, and whether the wait is timed.
 */
#include "truth.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define WAITERS 32

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t third = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive, errorcheck, adaptive, robust, inheriting;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, read_only = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static sem_t semaphore;
static struct timespec deadline;
static pthread_t sleeper_thread, abandoned_thread, joiners[2];
static volatile int going = 1;

static struct waiter {
    const char *primitive;
    const void *lock;
    volatile int tid;
    int owner, timed, spins;
} waiters[WAITERS];
static int waiter_count;
static int ring_size;

static int own_tid(void) { return (int)syscall(SYS_gettid); }

/* Every waiter says who it is just before it waits. */
static void arrive(struct waiter *self) { self->tid = own_tid(); }

static void *want_mutex(void *self)
{
    struct waiter *me = self;
    arrive(me);
    if (me->timed)
        pthread_mutex_timedlock((pthread_mutex_t *)(uintptr_t)me->lock, &deadline);
    else
        pthread_mutex_lock((pthread_mutex_t *)(uintptr_t)me->lock);
    hold();
    return self;
}

static void *want_read(void *self)
{
    struct waiter *me = self;
    arrive(me);
    pthread_rwlock_rdlock((pthread_rwlock_t *)(uintptr_t)me->lock);
    return self;
}

static void *want_write(void *self)
{
    struct waiter *me = self;
    arrive(me);
    pthread_rwlock_wrlock((pthread_rwlock_t *)(uintptr_t)me->lock);
    return self;
}

static void *want_signal(void *self)
{
    struct waiter *me = self;
    pthread_mutex_lock(&guard);
    arrive(me);
    if (me->timed)
        pthread_cond_timedwait(&condition, &guard, &deadline);
    else
        pthread_cond_wait(&condition, &guard);
    pthread_mutex_unlock(&guard);
    return self;
}

static void *want_post(void *self)
{
    struct waiter *me = self;
    arrive(me);
    if (me->timed)
        sem_timedwait(&semaphore, &deadline);
    else
        sem_wait(&semaphore);
    return self;
}

static void *want_arrivals(void *self)
{
    arrive(self);
    pthread_barrier_wait(&barrier);
    return self;
}

static void *want_spin(void *self)
{
    arrive(self);
    pthread_spin_lock(&spin);
    return self;
}

static void *want_end(void *self)
{
    arrive(self);
    pthread_join(sleeper_thread, NULL);
    return self;
}

static volatile int sleeper_tid;

static void *sleep_on(void *argument)
{
    sleeper_tid = own_tid();
    hold();
    return argument;
}

/* Add a waiter and start it; main waits until the kernel says that it waits. */
static struct waiter *add(const char *primitive, void *(*run)(void *), const void *lock, int owner, int timed)
{
    struct waiter *self = &waiters[waiter_count++];
    *self = (struct waiter){primitive, lock, 0, owner, timed, run == want_spin};
    spawn(numbered("waiter", waiter_count), run, self);
    return self;
}

static int in_futex(int tid)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    int number = got > 0 ? atoi(text) : -1;
    return got > 0 && (number == SYS_futex
#ifdef SYS_futex_time64
                       || number == SYS_futex_time64
#endif
                      );
}

static void settle(void)
{
    struct timespec moment = {0, 2000000};
    for (int i = 0; i < waiter_count; i++)
        for (int tries = 0; !waiters[i].tid || !(waiters[i].spins || in_futex(waiters[i].tid)); tries++) {
            if (tries == 5000)
                give_up("locks: a thread does not come to wait");
            nanosleep(&moment, NULL);
        }
    nanosleep(&moment, NULL);
}

static void make(pthread_mutex_t *mutex, int type, int robustness, int protocol)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setrobust(&attributes, robustness);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    pthread_mutex_init(mutex, &attributes);
}

static void zoo(void)
{
    int main_tid = own_tid();
    struct { const char *primitive; pthread_mutex_t *mutex; } kinds[] = {
        {"mutex", &normal}, {"recursive-mutex", &recursive}, {"errorcheck-mutex", &errorcheck},
        {"adaptive-mutex", &adaptive}, {"robust-mutex", &robust}, {"pi-mutex", &inheriting}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pthread_mutex_lock(kinds[i].mutex);
        add(kinds[i].primitive, want_mutex, kinds[i].mutex, main_tid, 0);
    }
    add("mutex", want_mutex, &normal, main_tid, 1);
    pthread_rwlock_wrlock(&written);
    add("rwlock-read", want_read, &written, main_tid, 0);
    add("rwlock-write", want_write, &written, main_tid, 0);
    pthread_rwlock_rdlock(&read_only);
    add("rwlock-write", want_write, &read_only, 0, 0);
    add("condition", want_signal, &condition, 0, 0);
    add("condition", want_signal, &condition, 0, 1);
    add("semaphore", want_post, &semaphore, 0, 0);
    add("semaphore", want_post, &semaphore, 0, 1);
    add("barrier", want_arrivals, &barrier, 0, 0);
    pthread_spin_lock(&spin);
    add("spinlock", want_spin, (const void *)(uintptr_t)&spin, 0, 0);
    sleeper_thread = spawn("sleeper", sleep_on, NULL);
    while (!sleeper_tid)
        sched_yield();
    add("join", want_end, NULL, sleeper_tid, 0);
}

/* Thread i holds locks[i] and wants locks[i + 1]. */
static pthread_mutex_t *const ring_locks[] = {&normal, &second, &third};

static void *link_ring(void *self)
{
    struct waiter *me = self;
    int at = (int)(me - waiters);
    pthread_mutex_lock(ring_locks[at]);
    me->tid = own_tid();
    meet();
    pthread_mutex_lock(ring_locks[(at + 1) % ring_size]);
    return self;
}

static void ring(int size)
{
    ring_size = size;
    expect((unsigned)size + 1);
    for (int i = 0; i < size; i++)
        add("mutex", link_ring, ring_locks[(i + 1) % size], 0, 0);
    meet();
    for (int i = 0; i < size; i++)
        waiters[i].owner = waiters[(i + 1) % size].tid;
}

static void *take_twice(void *self)
{
    struct waiter *me = self;
    pthread_mutex_lock(&normal);
    arrive(me);
    me->owner = me->tid;
    pthread_mutex_lock(&normal);
    return self;
}

static volatile int lost_tid;

static void *end_holding(void *mutex)
{
    lost_tid = own_tid();
    pthread_mutex_lock(mutex);
    return mutex;
}

static void lose(pthread_mutex_t *mutex, const char *primitive)
{
    pthread_join(spawn("loser", end_holding, mutex), NULL);
    if (mutex == &robust)
        return; /* whoever comes next is told, and nobody waits */
    add(primitive, want_mutex, mutex, lost_tid, 0);
    add(primitive, want_mutex, mutex, lost_tid, 0);
}

static volatile int slow_tid, middle_tid;

static void *be_slow(void *argument)
{
    slow_tid = own_tid();
    pthread_mutex_lock(&normal);
    meet();
    for (;;)
        sleep(1000);
    return argument;
}

static void *hold_second(void *self)
{
    struct waiter *me = self;
    pthread_mutex_lock(&second);
    middle_tid = own_tid();
    arrive(me);
    pthread_mutex_lock(&normal);
    return self;
}

static void convoy(void)
{
    expect(2);
    spawn("slow", be_slow, NULL);
    meet();
    await_parked(slow_tid);
    struct waiter *middle = add("mutex", hold_second, &normal, slow_tid, 0);
    while (!middle->tid)
        sched_yield();
    for (int i = 0; i < 4; i++)
        add("mutex", want_mutex, &normal, slow_tid, 0);
    for (int i = 0; i < 3; i++)
        add("mutex", want_mutex, &second, middle_tid, 0);
}

static void *join_other(void *self)
{
    struct waiter *me = self;
    int at = (int)(me - waiters);
    me->tid = own_tid();
    meet();
    meet();
    pthread_join(joiners[1 - at], NULL);
    return self;
}

static void join_cycle(void)
{
    expect(3);
    for (int i = 0; i < 2; i++) {
        struct waiter *self = &waiters[waiter_count++];
        *self = (struct waiter){"join", NULL, 0, 0, 0, 0};
        joiners[i] = spawn(numbered("joiner", i), join_other, self);
    }
    meet();
    waiters[0].owner = waiters[1].tid;
    waiters[1].owner = waiters[0].tid;
    meet();
}

/* A lock that prefers writers lets no reader pass a writer that waits. */
static void starved(void)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&read_only, &attributes);
    pthread_rwlock_rdlock(&read_only);
    add("rwlock-write", want_write, &read_only, 0, 0);
    settle();
    add("rwlock-read", want_read, &read_only, 0, 0);
    add("rwlock-read", want_read, &read_only, 0, 0);
}

static pthread_spinlock_t zeroed_lock;

static void *want_zeroed(void *self)
{
    struct waiter *me = self;
    me->lock = (const void *)(uintptr_t)&zeroed_lock;
    me->spins = 1;
    arrive(me);
    pthread_spin_lock(&zeroed_lock);
    return self;
}

/* Only those who spin know where the lock is: nobody seems to hold it. */
static void zeroed(void)
{
    add("spinlock", want_zeroed, NULL, 0, 0);
    add("spinlock", want_zeroed, NULL, 0, 0);
}

/* State the truth before waiting, since nobody can afterwards. */
static void wait_for_ever(void (*details)(void))
{
    struct waiter *self = &waiters[waiter_count++];
    *self = (struct waiter){"join", NULL, own_tid(), waiters[0].tid, 0, 0};
    write_truth(details);
    UNUSED ssize_t ignored = write(1, "READY\n", 6);
    if (aborts)
        abort();
    pthread_join(abandoned_thread, NULL);
}

/* Overwrite words of a mutex that is waited for: its word is the first, its kind the fifth, or the fourth of 32 bits. */
static void spoil(int word, int kind)
{
    int *words = (int *)&normal;
    pthread_mutex_lock(&normal);
    add("mutex", want_mutex, &normal, own_tid(), 0);
    settle();
    if (word >= 0)
        words[0] = word;
    if (kind)
        words[sizeof(void *) == 8 ? 4 : 3] = kind;
}

static void restarted(void)
{
    pthread_mutex_lock(&normal);
    add("mutex", want_mutex, &normal, own_tid(), 1);
    add("semaphore", want_post, &semaphore, 0, 1);
}

/* Stop all threads and let them go on, as a debugger that came and went does. */
static void interrupt_all(void)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        struct timespec moment = {0, 20000000};
        kill(parent, SIGSTOP);
        nanosleep(&moment, NULL);
        kill(parent, SIGCONT);
        _exit(0);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- the healthy twin ---- */

static void *contend(void *argument)
{
    volatile unsigned work = 0;
    while (going) {
        pthread_mutex_lock(&normal);
        for (int i = 0; i < 200; i++)
            work++;
        pthread_mutex_unlock(&normal);
        pthread_spin_lock(&spin);
        work++;
        pthread_spin_unlock(&spin);
        pthread_rwlock_rdlock(&written);
        work++;
        pthread_rwlock_unlock(&written);
        if (work % 64 == 0) {
            pthread_rwlock_wrlock(&written);
            pthread_rwlock_unlock(&written);
            sem_post(&semaphore);
            pthread_cond_signal(&condition);
        }
    }
    return argument;
}

static void *consume(void *argument)
{
    for (;;)
        sem_wait(&semaphore);
    return argument;
}

static void *await(void *argument)
{
    pthread_mutex_lock(&guard);
    for (;;)
        pthread_cond_wait(&condition, &guard);
    return argument;
}

static void busy(void)
{
    for (int i = 0; i < 4; i++)
        spawn(numbered("worker", i), contend, NULL);
    for (int i = 0; i < 3; i++) {
        spawn(numbered("consumer", i), consume, NULL);
        spawn(numbered("awaiter", i), await, NULL);
    }
    struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
}

static void details(void)
{
    json_number("main", (uintmax_t)own_tid());
    json_open("waiters", '[');
    for (int i = 0; i < waiter_count; i++) {
        json_open(NULL, '{');
        json_number("tid", (uintmax_t)waiters[i].tid);
        json_text("primitive", waiters[i].primitive);
        if (waiters[i].lock)
            json_address("lock", waiters[i].lock);
        else
            json_null("lock");
        if (waiters[i].owner)
            json_number("owner", (uintmax_t)waiters[i].owner);
        else
            json_null("owner");
        json_bool("timed", waiters[i].timed);
        json_close('}');
    }
    json_close(']');
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "locks", 1);
    if (nice(19) < 0) /* its threads never rest, and others work beside it */
        errno = 0;
    const char *mode = text_option("mode", "zoo");
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 100000;
    make(&recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&errorcheck, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    make(&inheriting, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
    pthread_barrier_init(&barrier, NULL, 3);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    sem_init(&semaphore, 0, 0);
    if (healthy)
        busy();
    else if (!strcmp(mode, "zoo"))
        zoo();
    else if (!strcmp(mode, "abba"))
        ring(2);
    else if (!strcmp(mode, "ring"))
        ring(3);
    else if (!strcmp(mode, "self"))
        add("mutex", take_twice, &normal, 0, 0);
    else if (!strcmp(mode, "lost"))
        lose(&normal, "mutex");
    else if (!strcmp(mode, "lost-robust"))
        lose(&robust, "robust-mutex");
    else if (!strcmp(mode, "convoy"))
        convoy();
    else if (!strcmp(mode, "join"))
        join_cycle();
    else if (!strcmp(mode, "lonely"))
        for (int i = 0; i < 3; i++)
            add("condition", want_signal, &condition, 0, 0);
    else if (!strcmp(mode, "readers")) {
        pthread_rwlock_rdlock(&written);
        add("rwlock-write", want_write, &written, 0, 0);
    } else if (!strcmp(mode, "starved"))
        starved();
    else if (!strcmp(mode, "zeroed"))
        zeroed();
    else if (!strcmp(mode, "abandoned")) {
        waiters[waiter_count++] = (struct waiter){"condition", &condition, 0, 0, 0, 0};
        abandoned_thread = spawn("abandoned", want_signal, &waiters[0]);
    } else if (!strcmp(mode, "destroyed"))
        spoil(-1, -1);
    else if (!strcmp(mode, "contradicting"))
        spoil(0, 0);
    else if (!strcmp(mode, "overwritten"))
        spoil(0x6f6c6548, 0x77777777);
    else if (!strcmp(mode, "restarted"))
        restarted();
    else
        give_up("locks: no such --mode");
    settle();
    if (!strcmp(mode, "restarted") && !healthy)
        interrupt_all();
    if (!strcmp(mode, "abandoned") && !healthy)
        wait_for_ever(details);
    truth_end(details);
}
