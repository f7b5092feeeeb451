/* Blocks of all kinds on a preloaded mimalloc: freed by their own and by other threads, left by one that has ended.
 *
 * --count N     (20000) blocks of 8 to 3000 bytes, from each of two threads
 * --twice       a block is freed twice
 * --overrun     a byte is written behind a block of 100 bytes; without these there is nothing wrong
 *
 * The truth is the program's ledger: `live` and `freed`, address and usable bytes of every block.
 */
#include "telling.h"

#include <malloc.h>

#define MOST (1 << 16)
#define LARGE 30
#define LEFT 50

static void *blocks[3 * MOST];
static size_t sizes[3 * MOST], count;
static char live[3 * MOST];

static void take(size_t at, size_t size)
{
    blocks[at] = malloc(size);
    memset(blocks[at], 0x5a, size);
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
    size_t own = (size_t)which * MOST, other = ((size_t)which + 1) % 2 * MOST;
    for (size_t i = 0; i < count; i++)
        take(own + i, i % 2 ? 200 : 8 + i * 7919 % 3000);
    meet();
    for (size_t i = 0; i < count; i += 5)
        drop(own + i);
    for (size_t i = 1; i < count; i += 5)
        drop(other + i);
    meet();
    hold();
    return NULL;
}

static void *leave(void *unused)
{
    for (size_t i = 0; i < LEFT; i++)
        take(2 * MOST + LARGE + i, 40 + i);
    return unused;
}

static void json_blocks(const char *key, int wanted)
{
    json_open(key, '[');
    for (size_t i = 0; i < 3 * MOST; i++)
        if (blocks[i] && live[i] == wanted)
            json_pair(NULL, blocks[i], sizes[i]);
    json_close(']');
}

int main(int argc, char **argv)
{
    parse_options(argc, argv, "mimalloc_zoo");
    count = number_option("count", 20000);
    expect(3);
    spawn("worker-0", work, (void *)0);
    spawn("worker-1", work, (void *)1);
    meet();
    for (size_t i = 0; i < LARGE; i++)
        take(2 * MOST + i, i == LARGE - 1 ? 40 * MIB : 10000u << i % 10);
    for (size_t i = 0; i < LARGE; i += 3)
        drop(2 * MOST + i);
    pthread_join(spawn("leaver", leave, NULL), NULL);
    meet();
    for (int i = 0; i < 2; i++)
        await_parked(thread_table[i].tid);
    if (flag_option("twice")) {
        void *block = malloc(2000);
        free(block);
        free(block);
    }
    take(2 * MOST + LARGE + LEFT, 100);
    char *over = blocks[2 * MOST + LARGE + LEFT];
    if (flag_option("overrun"))
        over[100] = 1;
    open_truth();
    json_open(NULL, '{');
    json_open("details", '{');
    json_blocks("live", 1);
    json_blocks("freed", 0);
    json_address("over", over);
    json_close('}');
    json_close('}');
    close_truth();
    ready();
}
