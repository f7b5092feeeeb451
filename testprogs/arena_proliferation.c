/* Many threads with sparing mallocs: every arena grows, then nearly all of it is freed, but a small block
 * at its end keeps it (memsqld, 2016). The healthy twin keeps what it allocated.
 *
 * --threads N (40), --arena-bytes N (1 MiB)
 */
#define LEDGER_SLOTS (1u << 17)
#include "truth.h"

#define BLOCK 1000
#define KEEP_EVERY 64

static size_t arena_bytes, threads;
static void *pins[MAX_THREADS], *arenas[MAX_THREADS];
static void *blocks[MAX_THREADS][2048];

static void *work(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    size_t count = arena_bytes / (BLOCK + WORD);
    for (size_t i = 0; i < count; i++)
        memset(blocks[number][i] = malloc(BLOCK), 0x61, BLOCK);
    memset(pins[number] = malloc(200), 0x70, 200);
    for (size_t i = 0; i < count && !healthy; i++)
        if (i % KEEP_EVERY)
            free(blocks[number][i]);
    arenas[number] = arena_of(pins[number]);
    meet();
    hold();
    return NULL;
}

static void details(void)
{
    json_number("worker_threads", threads);
    json_addresses("arenas", arenas, threads);
    json_addresses("pins", pins, threads);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "arena_proliferation", 1);
    threads = number_option("threads", 40);
    arena_bytes = number_option("arena-bytes", WORD == 8 ? MIB : MIB / 2);
    if (threads > MAX_THREADS || arena_bytes / (BLOCK + WORD) > 2048)
        give_up("arena_proliferation: too many threads or bytes");
    mallopt(M_ARENA_MAX, 64); /* as a machine of 8 cores has it */
    expect((unsigned)threads + 1);
    for (uintptr_t i = 0; i < threads; i++)
        spawn(numbered("worker", (int)i), work, (void *)i);
    meet();
    truth_end(details);
}
