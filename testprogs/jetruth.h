/* What every jemalloc test program shares: its allocator's entry points, a table of its blocks, and the truth.
 *
 * Nothing is linked: jemalloc is preloaded, so that one executable runs with each. The entry points are weak; their
 * prefix is JE_PREFIX (none by default). The truth holds what jemalloc itself says:
 *
 *   stats   the text of malloc_stats_print(…, "J"), through a callback into a static buffer. From 5.3 on it
 *           mallocs a buffer of its own meanwhile (64 KiB), which its figures include and memory no longer does.
 *   after   the figures of mallctl, taken after it: nothing allocates between them and the end.
 *
 * The first print goes nowhere: it makes jemalloc allocate what mallctl needs.
 */
#ifndef JETRUTH_H
#define JETRUTH_H

#include "telling.h"

#include <time.h>

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#ifdef JE_PREFIX
#define JE(name) PASTE(JE_PREFIX, name)
#define JE_PREFIX_TEXT_(prefix) #prefix
#define JE_PREFIX_TEXT(prefix) JE_PREFIX_TEXT_(prefix)
#define JE_NAME_PREFIX JE_PREFIX_TEXT(JE_PREFIX)
#else
#define JE(name) name
#define JE_NAME_PREFIX ""
#endif
#define WEAK __attribute__((weak))

extern void *JE(malloc)(size_t) WEAK;
extern void *JE(aligned_alloc)(size_t, size_t) WEAK;
extern void JE(free)(void *) WEAK;
extern void *JE(mallocx)(size_t, int) WEAK;
extern void JE(dallocx)(void *, int) WEAK;
extern size_t JE(sallocx)(const void *, int) WEAK;
extern int JE(mallctl)(const char *, void *, size_t *, void *, size_t) WEAK;
extern void JE(malloc_stats_print)(void (*)(void *, const char *), void *, const char *) WEAK;

#define IN_ARENA(index) ((int)((index) + 1) << 20) /* MALLOCX_ARENA */
#define NO_TCACHE (1 << 8)                         /* MALLOCX_TCACHE_NONE */

/* ---- mallctl ---- */

/* The value of a name, or `fallback` where this jemalloc knows no such name. */
static UNUSED uint64_t ask(const char *name, uint64_t fallback)
{
    uint64_t value = 0;
    size_t length = sizeof value;
    if (!JE(mallctl)(name, &value, &length, NULL, 0))
        return value;
    uint32_t narrow = 0; /* unsigned, or a bool below it */
    length = sizeof narrow;
    if (!JE(mallctl)(name, &narrow, &length, NULL, 0))
        return narrow;
    uint8_t flag = 0;
    length = sizeof flag;
    if (!JE(mallctl)(name, &flag, &length, NULL, 0))
        return flag;
    return fallback;
}

static const char *indexed(const char *stem, unsigned index, const char *member)
{
    static __thread char name[96];
    snprintf(name, sizeof name, "%s.%u.%s", stem, index, member);
    return name;
}

/* Bring the statistics up to date. */
static void refresh(void)
{
    uint64_t epoch = 1;
    size_t length = sizeof epoch;
    JE(mallctl)("epoch", &epoch, &length, &epoch, sizeof epoch);
}

/* The calling thread's arena. It makes the thread an ordinary user of malloc, if it was none. */
static unsigned own_arena(void) { return (unsigned)ask("thread.arena", 0); }

/* ---- the program's blocks ---- */

#ifndef BLOCK_SLOTS
#define BLOCK_SLOTS (1u << 19)
#endif

enum block_state { BLOCK_LIVE, BLOCK_FREED, BLOCK_CACHED };

static struct block {
    void *address;
    size_t asked, usable;
    int cached_by; /* tid */
    unsigned char state;
} block_table[BLOCK_SLOTS];
static size_t block_count;

/* Enter a block that was just allocated, and return it. */
static UNUSED struct block *note_block(void *address, size_t asked)
{
    size_t at = __atomic_fetch_add(&block_count, 1, __ATOMIC_RELAXED);
    if (!address || at >= BLOCK_SLOTS)
        give_up(address ? "truth: too many blocks: raise BLOCK_SLOTS" : "truth: no memory");
    block_table[at] = (struct block){address, asked, JE(sallocx)(address, 0), 0, BLOCK_LIVE};
    return &block_table[at];
}

static UNUSED struct block *take(size_t size) { return note_block(JE(malloc)(size), size); }

static UNUSED void give_back(struct block *block)
{
    block->state = BLOCK_FREED;
    JE(free)(block->address);
}

/* Free a block that is sure to stay in the calling thread's tcache. */
static UNUSED void leave_cached(struct block *block)
{
    give_back(block);
    block->cached_by = (int)syscall(SYS_gettid);
    block->state = BLOCK_CACHED;
}

static void json_block_list(const char *key, enum block_state state)
{
    json_open(key, '[');
    for (size_t i = 0; i < block_count; i++)
        if (block_table[i].state == state)
            json_pair(NULL, block_table[i].address, block_table[i].usable);
    json_close(']');
}

/* ["0x…", bytes, tid] */
static void json_cached_blocks(void)
{
    json_open("cached_blocks", '[');
    for (size_t i = 0; i < block_count; i++) {
        if (block_table[i].state != BLOCK_CACHED)
            continue;
        json_open(NULL, '[');
        json_address(NULL, block_table[i].address);
        json_number(NULL, block_table[i].usable);
        json_number(NULL, (uintmax_t)block_table[i].cached_by);
        json_close(']');
    }
    json_close(']');
}

/* ---- the threads' part ---- */

static struct je_thread {
    const char *role;
    int knows_arena;
    unsigned arena;
    uint64_t allocated, deallocated; /* bytes, as mallctl's thread.allocated says */
} je_threads[MAX_THREADS + 1];

/* Say what the calling thread is for; call it at any time. */
static UNUSED void note_role(const char *role) { je_threads[thread_slot + 1].role = role; }

/* Note the calling thread's arena and totals; call it last, where own_arena() does no harm. */
static UNUSED void note_thread_figures(void)
{
    struct je_thread *self = &je_threads[thread_slot + 1];
    self->arena = own_arena();
    self->allocated = ask("thread.allocated", 0);
    self->deallocated = ask("thread.deallocated", 0);
    self->knows_arena = 1;
}

static void json_je_threads(void)
{
    json_open("threads", '[');
    for (int i = -1; i < thread_count; i++) {
        struct je_thread *self = &je_threads[i + 1];
        json_open(NULL, '{');
        json_number("tid", i < 0 ? (uintmax_t)getpid() : (uintmax_t)thread_table[i].tid);
        json_text("name", i < 0 ? program_name : thread_table[i].name);
        json_bool("alive", i < 0 || thread_table[i].alive);
        json_text("role", self->role ? self->role : "");
        if (self->knows_arena) {
            json_number("arena", self->arena);
            json_number("allocated", self->allocated);
            json_number("deallocated", self->deallocated);
        }
        json_close('}');
    }
    json_close(']');
}

/* ---- what jemalloc says ---- */

#ifndef STATS_BYTES
#define STATS_BYTES (8 * MIB)
#endif
static char stats_text[STATS_BYTES];
static size_t stats_length;

static void discard(void *cookie, const char *text) { (void)cookie, (void)text; }

static void keep(void *cookie, const char *text)
{
    size_t length = strlen(text);
    (void)cookie;
    if (stats_length + length > sizeof stats_text)
        give_up("truth: malloc_stats_print is too long: raise STATS_BYTES");
    memcpy(stats_text + stats_length, text, length);
    stats_length += length;
}

/* Wait until jemalloc has started all threads of its own: each takes memory, at a moment of its choice. */
static void await_background_threads(void)
{
    uint64_t threads = 0;
    struct timespec moment = {0, 10000000};
    for (int still = 0; still < 20; still++) {
        refresh();
        uint64_t now = ask("stats.background_thread.num_threads", 0);
        still = now == threads ? still : 0;
        threads = now;
        nanosleep(&moment, NULL);
    }
}

static UNUSED void take_stats(void)
{
    if (ask("opt.background_thread", 0))
        await_background_threads();
    JE(malloc_stats_print)(discard, NULL, "J");
    stats_length = 0;
    JE(malloc_stats_print)(keep, NULL, "J");
    refresh();
}

static void json_asked(const char *key, const char *name)
{
    uint64_t value = ask(name, UINT64_MAX);
    if (value != UINT64_MAX)
        json_number(key, value);
}

static void json_after(void)
{
    static const char *const totals[] = {"allocated", "active", "metadata", "resident", "mapped", "retained"};
    static const char *const figures[] = {
        "nthreads", "dirty_decay_ms", "muzzy_decay_ms", "pactive", "pdirty", "pmuzzy", "mapped", "retained",
        "base", "internal", "resident", "tcache_bytes", "dirty_npurge", "dirty_nmadvise", "dirty_purged",
        "muzzy_npurge", "muzzy_nmadvise", "muzzy_purged", "small.allocated", "large.allocated"};
    char name[64];
    json_open("after", '{');
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        snprintf(name, sizeof name, "stats.%s", totals[i]);
        json_asked(totals[i], name);
    }
    json_open("arenas", '{');
    for (unsigned arena = 0; arena < ask("arenas.narenas", 0); arena++) {
        if (!ask(indexed("arena", arena, "initialized"), 0))
            continue;
        snprintf(name, sizeof name, "%u", arena);
        json_open(name, '{');
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
            json_asked(figures[i], indexed("stats.arenas", arena, figures[i]));
        json_close('}');
    }
    json_close('}');
    json_close('}');
}

static const char *je_version(void)
{
    const char *version = "";
    size_t length = sizeof version;
    JE(mallctl)("version", &version, &length, NULL, 0);
    return version;
}

/* ---- the truth ---- */

static UNUSED void je_begin(int argc, char **argv, const char *name)
{
    parse_options(argc, argv, name);
    if (!JE(mallctl) || !JE(malloc_stats_print))
        give_up("truth: no jemalloc of prefix \"" JE_NAME_PREFIX "\" is loaded");
}

static void json_je_head(void)
{
    json_text("program", program_name);
    json_text("glibc", gnu_get_libc_version());
    json_bool("healthy", healthy);
    json_number("pid", (uintmax_t)getpid());
    json_number("word", WORD);
    json_text("prefix", JE_NAME_PREFIX);
    json_text("version", je_version());
    json_number("page", ask("arenas.page", 0));
}

/* State the truth. `details` writes the program's own members, and must not allocate. */
static UNUSED void je_tell(void (*details)(void))
{
    struct timespec now;
    take_stats();
    open_truth();
    json_open(NULL, '{');
    json_je_head();
    json_je_threads();
    json_key("stats");
    out_string(stats_text, stats_length);
    json_after();
    json_block_list("live_blocks", BLOCK_LIVE);
    json_block_list("freed_blocks", BLOCK_FREED);
    json_cached_blocks();
    clock_gettime(CLOCK_MONOTONIC, &now);
    json_number("monotonic_ns", (uintmax_t)now.tv_sec * 1000000000u + (uintmax_t)now.tv_nsec);
    json_open("details", '{');
    if (details)
        details();
    json_close('}');
    json_close('}');
    close_truth();
}

/* State the truth, then park or abort. */
static UNUSED void je_end(void (*details)(void))
{
    je_tell(details);
    ready();
}

#endif
