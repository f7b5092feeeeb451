/* Blocks of all kinds on a preloaded tcmalloc (gperftools), from three threads, a third of them freed.
 *
 * --count N     (30000) blocks of 8 to 3000 bytes
 * --twice       the last block is freed twice
 * --overrun     a byte is written behind the first block that lives; without these there is nothing wrong
 *
 * The truth holds what the allocator says of itself (`details.stats`, the text of MallocExtension_GetStats, of which
 * nothing allocates), and the program's ledger: `live` and `freed`, address and usable size of every block.
 */
#include "telling.h"

#include <malloc.h>

extern void MallocExtension_GetStats(char *, int) __attribute__((weak));

#define THREADS 3
#define LARGE 20

static void *blocks[1 << 17];
static size_t sizes[1 << 17], count;
static char live[1 << 17], stats[1 << 15];

static void take(size_t at, size_t size)
{
    blocks[at] = malloc(size);
    sizes[at] = malloc_usable_size(blocks[at]);
    live[at] = 1;
}

static void drop(size_t at)
{
    free(blocks[at]);
    live[at] = 0;
}

static void *work(void *which)
{
    size_t own = (size_t)which;
    for (size_t i = own; i < count; i += THREADS)
        take(i, 8 + i * 7919 % 3000);
    for (size_t i = own; i < count; i += 3 * THREADS)
        drop(i);
    meet();
    hold();
    return NULL;
}

static void json_blocks(const char *key, int wanted)
{
    json_open(key, '[');
    for (size_t i = 0; i < count + LARGE; i++)
        if (live[i] == wanted)
            json_pair(NULL, blocks[i], sizes[i]);
    json_close(']');
}

int main(int argc, char **argv)
{
    parse_options(argc, argv, "tcmalloc_zoo");
    count = number_option("count", 30000);
    if (!MallocExtension_GetStats)
        give_up("tcmalloc_zoo: no tcmalloc is preloaded");
    expect(THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        spawn(numbered("worker", (int)i), work, (void *)i);
    meet();
    for (size_t i = 0; i < LARGE; i++)
        take(count + i, 300000 + i * 50000);
    for (size_t i = 0; i < LARGE; i += 2)
        drop(count + i);
    for (int i = 0; i < thread_count; i++)
        await_parked(thread_table[i].tid);
    if (flag_option("twice")) {
        void *block = malloc(2000);
        free(block);
        free(block);
    }
    size_t first = 0;
    while (!live[first])
        first++;
    if (flag_option("overrun"))
        ((char *)blocks[first])[sizes[first]]++;
    MallocExtension_GetStats(stats, sizeof stats);
    open_truth();
    json_open(NULL, '{');
    json_open("details", '{');
    json_text("stats", stats);
    json_blocks("live", 1);
    json_blocks("freed", 0);
    json_address("over", blocks[first]);
    json_close('}');
    json_close('}');
    close_truth();
    ready();
}
