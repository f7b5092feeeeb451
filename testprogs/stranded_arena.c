/* A thread fills an arena, hands a few blocks on, frees the rest and exits: the arena stays with nobody
 * attached and most of it free. In the healthy twin the thread lives and uses its memory.
 */
#include "truth.h"

#define BLOCKS 1600
#define BLOCK (16 * KIB - 64)
#define HANDED 4

static void *blocks[BLOCKS], *handed[HANDED];
static void *arena;

static void *work(void *argument)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK), 0x73, BLOCK);
    for (int i = 0; i < HANDED; i++)
        memset(handed[i] = malloc(500), 0x68, 500);
    arena = arena_of(handed[0]);
    if (healthy) {
        meet();
        hold();
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return argument;
}

static void details(void)
{
    json_address("arena", arena);
    json_addresses("handed", handed, HANDED);
    json_bool("thread_alive", healthy);
    json_number("thread", (uintmax_t)thread_table[0].tid);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "stranded_arena", 1);
    mallopt(M_ARENA_MAX, 8);
    expect(2);
    pthread_t thread = spawn("strander", work, NULL);
    if (healthy)
        meet();
    else
        pthread_join(thread, NULL);
    truth_end(details);
}
