/* Blocks of all kinds on musl's malloc, a third of them freed, some by another thread.
 *
 * --count N     (20000) blocks of 1 to 3000 bytes
 * --overrun     a byte behind the end of a block is written; without it there is nothing wrong
 *
 * The truth is the program's ledger: `live` and `freed`, address and the bytes that were asked for. musl counts nothing.
 */
#include "telling.h"

#include <malloc.h>

#define MORE 60

static void *blocks[1 << 16];
static size_t sizes[1 << 16], count;
static char live[1 << 16];

static void take(size_t at, void *block, size_t size)
{
    blocks[at] = block;
    sizes[at] = size;
    live[at] = 1;
    if (malloc_usable_size(block) != size)
        give_up("musl_zoo: this malloc keeps no sizes");
}

static void *drop(void *unused)
{
    for (size_t i = 0; i < count; i += 3) {
        free(blocks[i]);
        live[i] = 0;
    }
    meet();
    hold();
    return unused;
}

static void json_blocks(const char *key, int wanted)
{
    json_open(key, '[');
    for (size_t i = 0; i < count + MORE; i++)
        if (blocks[i] && live[i] == wanted)
            json_pair(NULL, blocks[i], sizes[i]);
    json_close(']');
}

int main(int argc, char **argv)
{
    parse_options(argc, argv, "musl_zoo");
    count = number_option("count", 20000);
    expect(2);
    for (size_t i = 0; i < count; i++)
        take(i, malloc(1 + i * 7919 % 3000), 1 + i * 7919 % 3000);
    for (size_t i = 0; i < 20; i++) {
        take(count + i, malloc(100000 + i * 50000), 100000 + i * 50000);
        take(count + 20 + i, aligned_alloc(64u << i % 5, 40 + i * 300), 40 + i * 300);
        take(count + 40 + i, realloc(malloc(9000), 100 + i * 400), 100 + i * 400);
    }
    for (size_t i = 0; i < 20; i += 2) {
        free(blocks[count + i]);
        live[count + i] = 0;
    }
    spawn("dropper", drop, NULL);
    meet();
    await_parked(thread_table[0].tid);
    if (flag_option("overrun"))
        ((char *)blocks[1])[sizes[1]] = 7;
    open_truth();
    json_open(NULL, '{');
    json_open("details", '{');
    json_blocks("live", 1);
    json_blocks("freed", 0);
    json_close('}');
    json_close('}');
    close_truth();
    ready();
}
