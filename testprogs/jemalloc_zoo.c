/* Threads that use jemalloc in every size class, small and large, and have given part of it back.
 *
 * --threads N      workers (4); the first alone goes up to classes of 8 MiB, the others to 256 KiB
 * --arenas N       arenas made by mallctl, with blocks of their own (0)
 * --hooks          the first of them has extent hooks of its own
 * --tcaches N      thread caches made by mallctl (0), each with known blocks; one more is destroyed, one flushed
 * --double         one block twice in the tcache of the last worker (nothing else is damaged)
 *
 * Each worker fills slabs, empties some of them wholly, some in part and leaves some full; then it flushes
 * its tcache and frees blocks that stay in it: those, and no others, are there (`cached_blocks`).
 * The first worker has arena 1, where there are several.
 * A worker called `leaver` does the same and ends; `idle` never allocates.
 */
#include "jetruth.h"

#define IN_CACHE(i) (((int)(i) + 2) << 8) /* MALLOCX_TCACHE */
#define MOST_SMALL 512
#define MOST_CACHED 4
#define OTHERS_LARGEST (256 * KIB)
#define LARGEST (8 * MIB)

static size_t bin_classes, large_classes, page;
static size_t created;
static unsigned created_arenas[16];
static void *hooks_used, *doubled;
static size_t workers;
static int caches; /* is the tcache on? */
static int first_has_arena;
static size_t caches_made;

/* The sizes are mallctl's. */
static size_t bin_size(size_t bin) { return ask(indexed("arenas.bin", (unsigned)bin, "size"), 0); }
static size_t bin_regions(size_t bin) { return ask(indexed("arenas.bin", (unsigned)bin, "nregs"), 0); }
static size_t large_size(size_t i) { return ask(indexed("arenas.lextent", (unsigned)i, "size"), 0); }

/* Three slabs' worth: the first stays full, the second is half emptied, the third is emptied. */
static void use_bin(size_t bin)
{
    static __thread struct block *taken[3 * MOST_SMALL];
    size_t size = bin_size(bin), slab = bin_regions(bin), count = 3 * slab + 1;
    if (slab > MOST_SMALL)
        count = slab + slab / 2;
    if (count > 3 * MOST_SMALL)
        count = 3 * MOST_SMALL;
    for (size_t i = 0; i < count; i++)
        memset((taken[i] = take(size - (i & 7)))->address, 0x5a, 8);
    for (size_t i = count / 3; i < count; i++)
        if (i >= 2 * count / 3 || i % 2)
            give_back(taken[i]);
}

static void use_large(size_t largest)
{
    for (size_t i = 0; i < large_classes && large_size(i) <= largest; i++) {
        struct block *kept = take(large_size(i) - 100);
        struct block *given = take(large_size(i));
        *(char *)kept->address = 1;
        give_back(given);
    }
}

static void use_alignments(void)
{
    for (size_t alignment = 64; alignment <= 1 * MIB; alignment *= 4)
        note_block(JE(aligned_alloc)(alignment, 3 * alignment), 3 * alignment);
}

/* Leave a few known blocks of many classes in the thread's cache, and nothing else. */
static void fill_cache(void)
{
    static __thread struct block *taken[MOST_CACHED];
    if (!caches)
        return;
    JE(mallctl)("thread.tcache.flush", NULL, NULL, NULL, 0);
    for (size_t bin = 0; bin < bin_classes; bin += 3) {
        size_t count = 1 + bin % MOST_CACHED;
        for (size_t i = 0; i < count; i++)
            taken[i] = note_block(JE(mallocx)(bin_size(bin), NO_TCACHE), bin_size(bin));
        for (size_t i = 0; i < count; i++)
            leave_cached(taken[i]);
    }
    struct block *large = note_block(JE(mallocx)(large_size(1), NO_TCACHE), large_size(1));
    leave_cached(large);
}

/* Blocks in caches that belong to no thread: `cached_blocks` has the cache's number for a thread id. */
static void create_caches(size_t count)
{
    unsigned cache, flushed, spare;
    size_t length = sizeof cache;
    if (!count)
        return;
    if (JE(mallctl)("tcache.create", &spare, &length, NULL, 0) || JE(mallctl)("tcache.create", &flushed, &length, NULL, 0))
        give_up("jemalloc_zoo: tcache.create failed");
    for (size_t i = 0; i < count && i < 16; i++) {
        if (JE(mallctl)("tcache.create", &cache, &length, NULL, 0))
            give_up("jemalloc_zoo: tcache.create failed");
        for (size_t bin = i; bin < bin_classes; bin += 4) {
            struct block *block = note_block(JE(mallocx)(bin_size(bin), NO_TCACHE), bin_size(bin));
            JE(dallocx)(block->address, IN_CACHE(cache));
            block->cached_by = (int)cache;
            block->state = BLOCK_CACHED;
        }
    }
    JE(dallocx)(JE(mallocx)(64, NO_TCACHE), IN_CACHE(flushed));
    JE(mallctl)("tcache.flush", NULL, NULL, &flushed, sizeof flushed);
    JE(mallctl)("tcache.destroy", NULL, NULL, &spare, sizeof spare);
    caches_made = count;
}

static void free_twice(void)
{
    struct block *block = note_block(JE(mallocx)(48, NO_TCACHE), 48);
    JE(free)(block->address);
    leave_cached(block);
    doubled = block->address;
}

static void use(size_t largest)
{
    for (size_t bin = 0; bin < bin_classes; bin++)
        use_bin(bin);
    use_large(largest);
}

static void *work(void *first)
{
    note_role("worker");
    if (first) {
        own_arena(); /* from here on the thread has one */
        __atomic_store_n(&first_has_arena, 1, __ATOMIC_RELEASE);
    }
    use(first ? LARGEST : OTHERS_LARGEST);
    if (first)
        use_alignments();
    fill_cache();
    if (flag_option("double") && thread_slot == (int)workers - 1)
        free_twice();
    note_thread_figures();
    meet();
    hold();
    return NULL;
}

static void *leave(void *unused)
{
    note_role("leaver");
    use(OTHERS_LARGEST);
    note_thread_figures();
    return unused;
}

static void *idle(void *unused)
{
    note_role("idle");
    meet();
    hold();
    return unused;
}

/* ---- arenas of the program's own ---- */

typedef void *alloc_hook(void *, void *, size_t, size_t, _Bool *, _Bool *, unsigned);
static struct {
    alloc_hook *alloc;
    void *others[8];
} own_hooks;

/* Memory comes from mmap; no other hook is given: such memory is never returned, split or purged. */
static void *hooked_alloc(
    void *hooks, void *address, size_t size, size_t alignment, _Bool *zero, _Bool *commit, unsigned arena)
{
    (void)hooks, (void)arena;
    if (address)
        return NULL;
    char *got = mmap(NULL, size + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED)
        return NULL;
    *zero = *commit = 1;
    return (void *)(((uintptr_t)got + alignment - 1) & ~(uintptr_t)(alignment - 1));
}

static void create_arenas(size_t count)
{
    for (; created < count && created < 16; created++) {
        void *hooks = &own_hooks;
        size_t length = sizeof(unsigned);
        int hooked = !created && flag_option("hooks");
        own_hooks.alloc = hooked_alloc;
        if (JE(mallctl)("arenas.create", &created_arenas[created], &length, hooked ? &hooks : NULL,
                hooked ? sizeof hooks : 0))
            give_up("jemalloc_zoo: arenas.create failed");
        if (hooked)
            hooks_used = hooks;
        int flags = IN_ARENA(created_arenas[created]) | NO_TCACHE;
        for (size_t bin = 0; bin < bin_classes; bin += 2) {
            note_block(JE(mallocx)(bin_size(bin), flags), bin_size(bin));
            struct block *freed = note_block(JE(mallocx)(bin_size(bin), flags), bin_size(bin));
            freed->state = BLOCK_FREED;
            JE(dallocx)(freed->address, flags);
        }
        note_block(JE(mallocx)(100 * KIB, flags), 100 * KIB);
    }
}

static void details(void)
{
    json_number("bins", bin_classes);
    json_bool("caches", caches);
    json_number("caches_made", caches_made);
    json_open("created_arenas", '[');
    for (size_t i = 0; i < created; i++)
        json_number(NULL, created_arenas[i]);
    json_close(']');
    if (hooks_used)
        json_address("hooks", hooks_used);
    if (doubled)
        json_address("doubled", doubled);
}

int main(int argc, char **argv)
{
    je_begin(argc, argv, "jemalloc_zoo");
    note_role("main");
    workers = number_option("threads", 4);
    page = ask("arenas.page", 4096);
    bin_classes = ask("arenas.nbins", 0);
    large_classes = ask("arenas.nlextents", 0);
    caches = (int)ask("thread.tcache.enabled", 0);
    expect((unsigned)workers + 2);
    for (size_t i = 0; i < workers; i++) {
        spawn(numbered("worker", (int)i), work, i ? NULL : &workers);
        while (!__atomic_load_n(&first_has_arena, __ATOMIC_ACQUIRE)) /* arena 1 is the first worker's */
            sched_yield();
    }
    spawn("idle", idle, NULL);
    pthread_join(spawn("leaver", leave, NULL), NULL);
    create_arenas(number_option("arenas", 0));
    use(OTHERS_LARGEST);
    create_caches(number_option("tcaches", 0));
    note_thread_figures();
    meet();
    je_end(details);
}
