/* Threads whose first call of the allocator is a free: in jemalloc 5.1 and 5.2 they never purge dirty pages.
 *
 * --threads N         (4)
 * --milliseconds N    how long they allocate and free at least (1200): longer than the decay time of 1000
 * --exited            they have ended when the truth is told
 * --mixed             every second one allocates first
 * --only-frees        one more thread frees one block and never allocates
 *
 * In the healthy twin each thread allocates once before its first free. Run it with
 * MALLOC_CONF=narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:1000. The main thread keeps its own calls few: each
 * thread that can purge does so for its whole arena. At the end at least 8000 KiB for each of the threads are unused,
 * which all of them free in their last moments.
 */
#include "jetruth.h"

#define BATCH 96

#define HELD 200
#define ROUNDS 400 /* at least: on a busy machine the time alone is too little work to tell anything by counters */

static uint64_t milliseconds;
static int exited, mixed;
static pthread_barrier_t churners;

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void allocate_and_free(unsigned *seed)
{
    void *batch[BATCH];
    for (int i = 0; i < BATCH; i++) {
        size_t size = 2048 + (size_t)rand_r(seed) % (94 * KIB);
        batch[i] = JE(malloc)(size);
        *(volatile char *)batch[i] = 1;
    }
    for (int i = 0; i < BATCH; i++)
        JE(free)(batch[i]);
}

/* Blocks that stay keep what is freed between them from joining into extents of 8 MiB, which are purged at once. */
static void pin(unsigned *seed, size_t count)
{
    void *gaps[8];
    for (size_t i = 0; i < count; i++) {
        take(1 + (size_t)rand_r(seed) % (64 * KIB));
        for (int gap = 0; gap < 8; gap++)
            gaps[gap] = JE(malloc)(40 * KIB);
        take(33 * KIB);
        for (int gap = 0; gap < 8; gap++)
            JE(free)(gaps[gap]);
    }
}

/* What each frees last was in use at the same time as the others', so that much is unused at the end. */
static void free_much(void)
{
    void *held[HELD];
    for (int i = 0; i < HELD; i++) {
        held[i] = JE(malloc)(40 * KIB);
        *(volatile char *)held[i] = 1;
        if (i % 8 == 0)
            take(33 * KIB);
    }
    pthread_barrier_wait(&churners);
    for (int i = 0; i < HELD; i++)
        JE(free)(held[i]);
}

static void churn(void)
{
    unsigned seed = 1 + (unsigned)thread_slot;
    uint64_t end = monotonic_ns() + milliseconds * 1000000;
    pin(&seed, 24);
    for (int rounds = 0; rounds < ROUNDS || monotonic_ns() < end; rounds++) {
        allocate_and_free(&seed);
        usleep(500);
    }
    free_much();
}

static void *free_first(void *block)
{
    note_role("free-first");
    JE(free)(block);
    churn();
    if (!exited)
        meet(), hold();
    return NULL;
}

static void *malloc_first(void *block)
{
    note_role("malloc-first");
    void *volatile first = JE(malloc)(32);
    JE(free)(first);
    JE(free)(block);
    churn();
    if (!exited)
        meet(), hold();
    return NULL;
}

static void *only_free(void *block)
{
    note_role("only-frees");
    JE(free)(block);
    meet();
    hold();
    return NULL;
}

static void *idle(void *unused)
{
    note_role("idle");
    meet();
    hold();
    return unused;
}

static void details(void)
{
    json_bool("exited", exited);
    json_bool("mixed", mixed);
    json_number("milliseconds", milliseconds);
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_THREADS];
    je_begin(argc, argv, "jemalloc_stalled");
    note_role("main");
    int count = (int)number_option("threads", 4), only = flag_option("only-frees");
    milliseconds = number_option("milliseconds", 1200);
    exited = flag_option("exited");
    mixed = flag_option("mixed");
    pthread_barrier_init(&churners, NULL, (unsigned)count);
    expect((unsigned)(exited ? 0 : count) + (unsigned)only + 2);
    for (int i = 0; i < count; i++) {
        int well = healthy || (mixed && i % 2);
        threads[i] = spawn(numbered("churn", i), well ? malloc_first : free_first, JE(malloc)(32));
    }
    if (only)
        spawn("freeing", only_free, JE(malloc)(32));
    spawn("idle", idle, NULL);
    for (int i = 0; exited && i < count; i++)
        pthread_join(threads[i], NULL);
    meet();
    je_end(details);
}
