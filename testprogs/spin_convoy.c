/* Three threads spin on the lock of one table, whose holder is inside the long chain of one bin: what stops a
 * server when the hashes of many entries are stale.
 *
 * --entries N      in the group (20000); three of four have one stored hash
 *
 * In the healthy twin the same threads look up fair hashes, and let go of the lock each time.
 */
#include "truth.h"
#include "lruhash.h"

#define SAME_HASH 0x2d5a17u
#define SPINNERS 3

struct slabhash *cache;

static size_t entries, slab, chain, bin_index;
static volatile int spinner_tids[SPINNERS], holder_tid;
static volatile size_t sink, rounds;

static uint32_t hash_of(size_t i) { return !healthy && i % 4 ? SAME_HASH : fair(i); }

/* Follow the chain of a hash with the locks held, as a look-up does that finds nothing. */
__attribute__((noinline)) static size_t look_up(struct lruhash *table, uint32_t hash)
{
    size_t seen = 0;
    pthread_spin_lock(&table->lock);
    struct lruhash_bin *bin = &table->array[hash & (size_t)table->size_mask];
    pthread_spin_lock(&bin->lock);
    do {
        for (struct lruhash_entry *entry = bin->overflow_list; entry; entry = entry->overflow_next)
            seen += entry->hash == hash && ((struct cached_name *)entry->key)->name[0] == '?';
        rounds++;
    } while (!healthy); /* the chain is as if it never ended */
    pthread_spin_unlock(&bin->lock);
    pthread_spin_unlock(&table->lock);
    return seen;
}

static void *serve(void *tid)
{
    *(volatile int *)tid = (int)syscall(SYS_gettid);
    for (size_t i = 0;; i++) {
        uint32_t hash = healthy ? hash_of(i % entries) : SAME_HASH;
        sink += look_up(cache->array[slab_of(cache, hash)], hash);
    }
    return tid;
}

static void details(void)
{
    json_address("lock", (void *)(uintptr_t)&cache->array[slab]->lock);
    json_address("table", cache->array[slab]);
    json_number("slab", slab);
    json_number("bin", bin_index);
    json_number("chain", chain);
    json_number("holder", (uintmax_t)holder_tid);
    json_open("spinners", '[');
    for (int i = 0; i < SPINNERS; i++)
        json_number(NULL, (uintmax_t)spinner_tids[i]);
    json_close(']');
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "spin_convoy", 1);
    if (nice(19) < 0) /* its threads never rest, and others work beside it */
        errno = 0;
    entries = number_option("entries", 20000);
    cache = new_group(4, 1024);
    for (size_t i = 0; i < entries; i++)
        add(cache->array[slab_of(cache, hash_of(i))], new_name(i), hash_of(i), 1);
    slab = slab_of(cache, SAME_HASH);
    bin_index = SAME_HASH & (size_t)cache->array[slab]->size_mask;
    for (size_t i = 0; i < entries; i++)
        chain += slab_of(cache, hash_of(i)) == slab && (hash_of(i) & (size_t)cache->array[slab]->size_mask) == bin_index;
    spawn("holder", serve, (void *)&holder_tid);
    while (rounds < 3)
        sched_yield();
    for (int i = 0; i < SPINNERS; i++)
        spawn(numbered("spinner", i), serve, (void *)&spinner_tids[i]);
    for (int i = 0; i < SPINNERS; i++)
        while (!spinner_tids[i])
            sched_yield();
    struct timespec moment = {0, 50000000};
    nanosleep(&moment, NULL);
    truth_end(details);
}
