/* Threads that wait, each in another way: what C++ makes of pthreads and futexes, and what pthreads have besides
 * the common kinds (testprogs/locks.c has those).
 *
 * usage: waits TRUTH [leaderless | huge N]
 * Each line of the truth: a thread's id, what it waits at, the lock's address, its owner's id (0: it names none),
 * whether it is timed. All is held by main but what a thread of its own must hold.
 * leaderless: main ends by pthread_exit, while another thread goes on holding a mutex that a third wants.
 * huge N: N threads wait for one mutex, on small stacks.
 */
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <thread>

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

int own_tid() { return static_cast<int>(syscall(SYS_gettid)); }

void fail(const char *what)
{
    std::perror(what);
    std::exit(3);
}

struct Case {
    const char *primitive;
    const void *lock;
    int owner;
    bool timed;
    std::atomic<int> tid{0};
    std::atomic<bool> leaves{false};
    bool alone = false;
};

Case cases[4096];
int count;

/* Start a thread that says who it is and then waits; it never ends. */
template <typename Wait> Case &waits(const char *primitive, const void *lock, int owner, bool timed, Wait wait)
{
    Case &self = cases[count++];
    self.primitive = primitive;
    self.lock = lock;
    self.owner = owner;
    self.timed = timed;
    std::thread([&self, wait] {
        self.tid = own_tid();
        wait(self);
        pause();
    }).detach();
    return self;
}

bool in_futex(int tid)
{
    char path[64], text[32] = "";
    std::snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return false;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 && std::atoi(text) == SYS_futex;
}

void settle()
{
    for (int i = 0; i < count; i++)
        for (int tries = 0; !cases[i].tid || !in_futex(cases[i].tid); tries++) {
            if (tries == 5000)
                fail(cases[i].primitive);
            usleep(2000);
        }
    usleep(5000);
}

void write_truth(const char *path)
{
    FILE *out = std::fopen(path, "w");
    if (!out)
        fail(path);
    for (int i = 0; i < count; i++)
        std::fprintf(out, "%d %s %#lx %d %d\n", cases[i].tid.load(), cases[i].primitive,
                     reinterpret_cast<unsigned long>(cases[i].lock), cases[i].owner, cases[i].timed);
    std::fclose(out);
}

void make(pthread_mutex_t *mutex, int type, int robust, int protocol, int shared)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setrobust(&attributes, robust);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    pthread_mutexattr_setpshared(&attributes, shared);
    if (pthread_mutex_init(mutex, &attributes))
        fail("pthread_mutex_init");
}

std::mutex plain;
std::recursive_mutex recursive;
std::recursive_timed_mutex timed;
std::shared_mutex written, read_only;
std::condition_variable condition;
std::mutex guard;
std::counting_semaphore<8> semaphore{0};
std::atomic<int> word{2};
std::once_flag once;
std::atomic<int> holding{0};
pthread_mutex_t robust, inheriting, ceiling, self_taken;
pthread_rwlock_t preferring;
int raw_word = 2;
std::thread sleeper;

void hold_for_ever()
{
    holding++;
    for (;;)
        pause();
}

struct Slow {
    Slow() { hold_for_ever(); }
};

Slow &slow()
{
    static Slow made;
    return made;
}

void await_holders(int number)
{
    while (holding < number)
        usleep(1000);
}

void cxx_cases(int me)
{
    const auto far = std::chrono::hours(1000);
    plain.lock();
    waits("mutex", &plain, me, false, [](Case &) { plain.lock(); });
    recursive.lock();
    waits("recursive-mutex", &recursive, me, false, [](Case &) { recursive.lock(); });
    timed.lock();
    waits("recursive-mutex", &timed, me, true, [far](Case &) { (void)timed.try_lock_for(far); });
    written.lock();
    waits("rwlock-read", &written, me, false, [](Case &) { written.lock_shared(); });
    waits("rwlock-write", &written, me, false, [](Case &) { written.lock(); });
    read_only.lock_shared();
    waits("rwlock-write", &read_only, 0, false, [](Case &) { read_only.lock(); });
    waits("condition", &condition, 0, false, [](Case &) {
        std::unique_lock<std::mutex> lock(guard);
        condition.wait(lock);
    });
    waits("condition", &condition, 0, true, [far](Case &) {
        std::unique_lock<std::mutex> lock(guard);
        condition.wait_for(lock, far);
    });
    waits("futex", nullptr, 0, false, [](Case &) { semaphore.acquire(); });
    waits("futex", nullptr, 0, false, [](Case &) { word.wait(2); });
    std::thread([] { std::call_once(once, hold_for_ever); }).detach();
    std::thread([] { slow(); }).detach();
    await_holders(2);
    waits("once", &once, 0, false, [](Case &) { std::call_once(once, [] {}); });
    waits("once", nullptr, 0, false, [](Case &) { slow(); });
    sleeper = std::thread(hold_for_ever);
    await_holders(3);
    waits("join", nullptr, 0, false, [](Case &) { sleeper.join(); });
}

void pthread_cases(int me)
{
    make(&ceiling, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_PROTECT, 0);
    if (!pthread_mutex_lock(&ceiling)) /* needs the right to raise a priority */
        waits("mutex", &ceiling, me, false, [](Case &) { pthread_mutex_lock(&ceiling); });
    make(&inheriting, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_INHERIT, 0);
    pthread_mutex_lock(&inheriting);
    waits("pi-mutex", &inheriting, me, false, [](Case &) { pthread_mutex_lock(&inheriting); });
    waits("pi-mutex", &inheriting, me, true, [](Case &) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_sec += 100000;
        pthread_mutex_clocklock(&inheriting, CLOCK_MONOTONIC, &at);
    });
    make(&self_taken, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT, 0);
    waits("pi-mutex", &self_taken, -1, false, [](Case &self) {
        self.owner = self.tid;
        pthread_mutex_lock(&self_taken);
        pthread_mutex_lock(&self_taken);
    });
    make(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0);
    std::thread([] { pthread_mutex_lock(&robust); }).join();
    if (pthread_mutex_lock(&robust) != EOWNERDEAD)
        fail("robust");
    waits("robust-mutex", &robust, me, false, [](Case &) { pthread_mutex_lock(&robust); });
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&preferring, &attributes);
    pthread_rwlock_rdlock(&preferring);
    Case &writer = waits("rwlock-write", &preferring, 0, false, [](Case &) { pthread_rwlock_wrlock(&preferring); });
    while (!writer.tid || !in_futex(writer.tid))
        usleep(1000);
    waits("rwlock-read", &preferring, 0, false, [](Case &) { pthread_rwlock_rdlock(&preferring); });
}

/* A mutex that another process holds. */
void shared_case()
{
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto *mutex = static_cast<pthread_mutex_t *>(page);
    auto *taken = reinterpret_cast<std::atomic<int> *>(static_cast<char *>(page) + 1024);
    make(mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_SHARED);
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_mutex_lock(mutex);
        *taken = own_tid();
        for (;;)
            pause();
    }
    while (!*taken)
        usleep(1000);
    waits("mutex", mutex, *taken, false, [mutex](Case &) { pthread_mutex_lock(mutex); });
}

void stdio_case(int me)
{
    FILE *file = std::tmpfile();
    flockfile(file);
    waits("low-level-lock", nullptr, me, false, [file](Case &) { std::fputc('x', file); });
}

/* No unwinder gets past these registers. */
void stackless_case()
{
    waits("futex", &raw_word, 0, false, [](Case &) {
        register long timeout __asm__("r10") = 0;
        __asm__ volatile("mov $16, %%rsp\n\txor %%ebp, %%ebp\n\t1: mov $202, %%eax\n\tsyscall\n\tjmp 1b"
                         :
                         : "D"(&raw_word), "S"(FUTEX_WAIT_PRIVATE), "d"(2), "r"(timeout)
                         : "rax", "rcx", "r11", "memory");
    });
}

__attribute__((noinline)) void interesting() { __asm__ volatile("" ::: "memory"); }

void leaderless(const char *truth)
{
    std::thread([truth] {
        plain.lock();
        waits("mutex", &plain, own_tid(), false, [](Case &) { plain.lock(); });
        settle();
        usleep(20000);
        write_truth(truth);
        interesting();
        for (;;)
            pause();
    }).detach();
    pthread_exit(nullptr);
}

void *take_plain(void *argument)
{
    static_cast<Case *>(argument)->tid = own_tid();
    plain.lock();
    return argument;
}

void huge(int number)
{
    plain.lock();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (int i = 0; i < number; i++) {
        Case &self = cases[count++];
        self.primitive = "mutex";
        self.lock = &plain;
        self.owner = own_tid();
        pthread_t thread;
        if (pthread_create(&thread, &attributes, take_plain, &self))
            fail("pthread_create");
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    const char *mode = argc > 2 ? argv[2] : "";
    if (!std::strcmp(mode, "leaderless"))
        leaderless(argv[1]);
    if (!std::strcmp(mode, "huge"))
        huge(std::atoi(argv[3]));
    else {
        shared_case();
        cxx_cases(own_tid());
        pthread_cases(own_tid());
        stdio_case(own_tid());
        stackless_case();
    }
    settle();
    write_truth(argv[1]);
    interesting();
    std::puts("READY");
    std::fflush(stdout);
    for (;;)
        pause();
}
