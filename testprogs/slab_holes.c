/* Slabs that stay for the few blocks of them that live: all but every sixteenth of many small blocks are freed.
 *
 * --count N     (400000) blocks of 160 bytes
 * --cached N    instead N threads take and free 4 MiB each, again and again, and stay: what their caches hold
 * --kept N      (0) MiB that live besides
 *
 * In the healthy twin of the first as many live, but neighbours: the other slabs are empty. Runs on any malloc. The
 * truth is what was taken and what lives, in bytes asked for.
 */
#include "telling.h"

#define SIZE 160
#define KEPT 16 /* one of so many lives */
#define CACHED 1024
#define OF_THREAD (4 * MIB)
#define ROUNDS 100 /* a cache grows to what its thread takes again and again */

static size_t count, live;
static void *volatile *blocks;

static void *work(void *unused)
{
    size_t own = OF_THREAD / CACHED, bytes = own * sizeof(void *);
    void **mine = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < own; i++)
            memset(mine[i] = malloc(CACHED), 0x6b, CACHED);
        for (size_t i = 0; i < own; i++)
            free(mine[i]);
    }
    munmap(mine, bytes);
    meet();
    hold();
    return unused;
}

static void make_holes(void)
{
    size_t bytes = count * sizeof(void *);
    blocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++)
        memset(blocks[i] = malloc(SIZE), 0x6b, SIZE);
    for (size_t i = 0; i < count; i++)
        if (healthy ? i < count / KEPT : i % KEPT == 0)
            live++;
        else
            free(blocks[i]);
}

int main(int argc, char **argv)
{
    parse_options(argc, argv, "slab_holes");
    count = number_option("count", 400000);
    size_t threads = number_option("cached", 0);
    for (size_t i = number_option("kept", 0) * 16; i; i--)
        memset(malloc(65536), 0x6b, 65536);
    expect((int)threads + 1);
    for (size_t i = 0; i < threads; i++)
        spawn(numbered("worker", (int)i), work, NULL);
    meet();
    for (int i = 0; i < thread_count; i++)
        await_parked(thread_table[i].tid);
    if (!threads)
        make_holes();
    open_truth();
    json_open(NULL, '{');
    json_open("details", '{');
    json_number("taken", threads ? threads * OF_THREAD : count * SIZE);
    json_number("live", live * SIZE);
    json_close('}');
    json_close('}');
    close_truth();
    ready();
}
