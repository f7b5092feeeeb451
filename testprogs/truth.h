/* What every test program shares: options, a complete ledger of malloc, and the truth it states.
 *
 * Include it once, in the program's only source file. The program defines malloc and its family itself
 * and passes them on to glibc (`__libc_malloc`, or the linker's `--wrap` in a static program), so
 * that the ledger also holds what libc and the loader allocate (thread vectors, the FILE of malloc_info).
 * What it does not see is the tcache of each thread, which malloc takes from the heap by itself.
 *
 * The ledger keeps the complements of addresses, so that a search for pointers finds none in it.
 * Nothing here calls malloc after truth_begin(); truth is written with write(2) from static buffers.
 */
#ifndef TRUTH_H
#define TRUTH_H

#include "telling.h"

#include <malloc.h>

#ifndef LEDGER_SLOTS
#define LEDGER_SLOTS (1u << 16) /* a power of two, at least twice the blocks ever made */
#endif
#ifndef LISTED_BLOCKS
#define LISTED_BLOCKS 4096 /* how many blocks of each kind the truth lists */
#endif

/* ---- glibc's public facts about a chunk, for stating truth only ---- */

#define HEADER (2 * WORD) /* from the chunk to the block */

static UNUSED size_t *size_field(void *block) { return (size_t *)block - 1; }
static UNUSED size_t chunk_size(void *block) { return *size_field(block) & ~(size_t)7; }
static UNUSED char *chunk_of(void *block) { return (char *)block - HEADER; }
static UNUSED int is_mmapped(void *block) { return (*size_field(block) & 2) != 0; }

/* The malloc_state of a block in a thread's arena (its heap_info's first word), NULL in the main arena. */
static UNUSED void *arena_of(void *block)
{
    uintptr_t heap_max = sizeof(void *) == 8 ? 64 * MIB : MIB;
    if (is_mmapped(block) || !(*size_field(block) & 4))
        return NULL;
    return *(void **)((uintptr_t)block & ~(heap_max - 1));
}

/* ---- the ledger ---- */

struct entry {
    uintptr_t key; /* ~address; 0: the slot is empty */
    size_t usable; /* bytes * 2, bit 0: live */
};

static struct entry ledger[LEDGER_SLOTS];
static size_t ledger_used, ledger_allocations, ledger_frees;
static char ledger_lock;

static void lock_ledger(void)
{
    while (__atomic_test_and_set(&ledger_lock, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void unlock_ledger(void) { __atomic_clear(&ledger_lock, __ATOMIC_RELEASE); }

static struct entry *ledger_slot(void *block)
{
    uintptr_t key = ~(uintptr_t)block;
    size_t at = (size_t)(((uintptr_t)block >> 3) * (uintptr_t)2654435761u) % LEDGER_SLOTS;
    while (ledger[at].key && ledger[at].key != key)
        at = (at + 1) % LEDGER_SLOTS;
    if (!ledger[at].key) {
        if (++ledger_used >= LEDGER_SLOTS - LEDGER_SLOTS / 8)
            give_up("truth: the ledger is full: raise LEDGER_SLOTS");
        ledger[at].key = key;
    }
    return &ledger[at];
}

static void *ledger_add(void *block)
{
    if (block) {
        size_t usable = malloc_usable_size(block);
        lock_ledger();
        ledger_slot(block)->usable = usable << 1 | 1;
        ledger_allocations++;
        unlock_ledger();
    }
    return block;
}

static void ledger_remove(void *block)
{
    if (block) {
        lock_ledger();
        ledger_slot(block)->usable &= ~(size_t)1;
        ledger_frees++;
        unlock_ledger();
    }
}

/* ---- malloc's family ---- */

#ifdef TRUTH_STATIC
#define OURS(name) __wrap_##name
#define REAL(name) __real_##name
#else
#define OURS(name) name
#define REAL(name) __libc_##name
#endif

extern void *REAL(malloc)(size_t);
extern void *REAL(calloc)(size_t, size_t);
extern void *REAL(realloc)(void *, size_t);
extern void *REAL(memalign)(size_t, size_t);
extern void REAL(free)(void *);

static char thread_allocates[MAX_THREADS + 1];

static void note_thread(void) { thread_allocates[thread_slot + 1] = 1; }

void *OURS(malloc)(size_t size)
{
    note_thread();
    return ledger_add(REAL(malloc)(size));
}

void *OURS(calloc)(size_t count, size_t size)
{
    note_thread();
    return ledger_add(REAL(calloc)(count, size));
}

void OURS(free)(void *block)
{
    ledger_remove(block);
    REAL(free)(block);
}

void *OURS(realloc)(void *block, size_t size)
{
    note_thread();
    ledger_remove(block);
    void *moved = REAL(realloc)(block, size);
    if (!moved && size)
        return ledger_add(block), NULL;
    return ledger_add(moved);
}

void *OURS(memalign)(size_t alignment, size_t size)
{
    note_thread();
    return ledger_add(REAL(memalign)(alignment, size));
}

void *OURS(aligned_alloc)(size_t alignment, size_t size) { return OURS(memalign)(alignment, size); }

int OURS(posix_memalign)(void **result, size_t alignment, size_t size)
{
    void *block = OURS(memalign)(alignment, size);
    if (!block)
        return ENOMEM;
    *result = block;
    return 0;
}

/* How many blocks of one class a thread's tcache keeps by default. */
static UNUSED size_t tcache_depth(void) { return glibc_at_least(43) ? 16 : 7; }

/* ---- malloc_info into a static buffer ---- */

static char info_text[2 * MIB], info_buffer[4096];
static size_t info_length;
static FILE *info_stream;
static int info_taken;

static ssize_t info_write(void *cookie, const char *text, size_t length)
{
    (void)cookie;
    if (info_length + length > sizeof info_text)
        give_up("truth: malloc_info is too long");
    memcpy(info_text + info_length, text, length);
    info_length += length;
    return (ssize_t)length;
}

/* Ask malloc_info now: before any damage that would stop it (it takes locks and walks bins). */
static UNUSED void take_malloc_info(void)
{
    if (!info_stream || info_taken)
        return;
    info_taken = 1;
    malloc_info(0, info_stream);
    fflush(info_stream);
}

/* ---- the truth ---- */

struct sum {
    size_t blocks;
    uintmax_t bytes;
};

static void add_to(struct sum *sum, size_t bytes)
{
    sum->blocks++;
    sum->bytes += bytes;
}

static void json_sum(const char *key, struct sum sum)
{
    json_open(key, '{');
    json_number("blocks", sum.blocks);
    json_number("bytes", sum.bytes);
    json_close('}');
}

static void json_blocks(const char *key, size_t live)
{
    size_t listed = 0;
    json_open(key, '[');
    for (size_t i = 0; i < LEDGER_SLOTS && listed < LISTED_BLOCKS; i++)
        if (ledger[i].key && (ledger[i].usable & 1) == live) {
            json_pair(NULL, (void *)~ledger[i].key, ledger[i].usable >> 1);
            listed++;
        }
    json_close(']');
}

#define MAX_SIZES 1024
static struct {
    size_t usable, count;
} size_table[MAX_SIZES];
static size_t size_count;

static void count_size(size_t usable)
{
    size_t i = 0;
    while (i < size_count && size_table[i].usable != usable)
        i++;
    if (i == MAX_SIZES)
        return;
    if (i == size_count)
        size_table[size_count++].usable = usable;
    size_table[i].count++;
}

static void json_sizes(void)
{
    if (size_count == MAX_SIZES) {
        json_null("live_by_size");
        return;
    }
    json_open("live_by_size", '[');
    for (size_t i = 0; i < size_count; i++) {
        json_open(NULL, '[');
        json_number(NULL, size_table[i].usable);
        json_number(NULL, size_table[i].count);
        json_close(']');
    }
    json_close(']');
}

#ifndef DAMAGED_HEADERS
#define DAMAGED_HEADERS 0 /* 1: block headers may be overwritten when truth is told: do not read them */
#endif

static void json_ledger(void)
{
    struct sum live = {0, 0}, freed = {0, 0}, mapped = {0, 0};
    for (size_t i = 0; i < LEDGER_SLOTS; i++) {
        size_t usable = ledger[i].usable >> 1;
        if (!ledger[i].key)
            continue;
        if (!(ledger[i].usable & 1)) {
            add_to(&freed, usable);
            continue;
        }
        add_to(&live, usable);
        count_size(usable);
        if (!DAMAGED_HEADERS && is_mmapped((void *)~ledger[i].key))
            add_to(&mapped, usable);
    }
    json_open("ledger", '{');
    json_sum("live", live);
    json_sum("freed", freed);
    if (DAMAGED_HEADERS)
        json_null("mmapped");
    else
        json_sum("mmapped", mapped);
    json_number("allocations", ledger_allocations);
    json_number("frees", ledger_frees);
    json_sizes();
    json_bool("all_listed", live.blocks <= LISTED_BLOCKS && freed.blocks <= LISTED_BLOCKS);
    json_blocks("live_blocks", 1);
    json_blocks("freed_blocks", 0);
    json_close('}');
}

static void json_threads(void)
{
    size_t allocating = thread_allocates[0] != 0;
    json_open("threads", '[');
    for (int i = -1; i < thread_count; i++) {
        if (i >= 0 && !thread_table[i].alive)
            continue;
        json_open(NULL, '{');
        json_number("tid", i < 0 ? (uintmax_t)getpid() : (uintmax_t)thread_table[i].tid);
        json_text("name", i < 0 ? program_name : thread_table[i].name);
        json_bool("allocates", thread_allocates[i + 1]);
        json_close('}');
        allocating += i >= 0 && thread_allocates[i + 1];
    }
    json_close(']');
    json_number("allocating_threads", allocating);
}

static void write_truth(void (*details)(void))
{
    open_truth();
    json_open(NULL, '{');
    json_text("program", program_name);
    json_text("glibc", gnu_get_libc_version());
    json_bool("healthy", healthy);
    json_number("pid", (uintmax_t)getpid());
    json_number("word", WORD);
    json_threads();
    json_ledger();
    json_key("malloc_info");
    if (info_taken)
        out_string(info_text, info_length);
    else
        out_text("null");
    json_open("details", '{');
    if (details)
        details();
    json_close('}');
    json_close('}');
    close_truth();
}

/* Parse the common options and open what malloc_info will need. `asks_malloc` 0: never malloc. */
static void truth_begin(int argc, char **argv, const char *name, int asks_malloc)
{
    parse_options(argc, argv, name);
    if (asks_malloc) {
        cookie_io_functions_t functions = {.write = info_write};
        info_stream = fopencookie(NULL, "w", functions);
        setvbuf(info_stream, info_buffer, _IOFBF, sizeof info_buffer);
    }
}

/* State the truth, then park or abort. `details` writes the program's own members. */
static UNUSED void truth_end(void (*details)(void))
{
    take_malloc_info();
    write_truth(details);
    ready();
}

#endif
