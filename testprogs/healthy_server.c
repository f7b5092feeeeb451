/* A server in its steady state: four workers, mixed sizes, most memory in use. Nothing to find. */
#include "truth.h"

#define WORKERS 4
#define KEPT 400
#define ROUNDS 20000

static void *kept[WORKERS][KEPT];

static void *serve(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    uint32_t random = 12345 + (uint32_t)number;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1664525 + 1013904223;
        void **slot = &kept[number][(random >> 8) % KEPT];
        free(*slot);
        *slot = malloc(16 + (random >> 20) % 3000);
        memset(*slot, 0x5a, malloc_usable_size(*slot));
    }
    meet();
    hold();
    return NULL;
}

static void details(void)
{
    json_number("workers", WORKERS);
    json_open("arenas", '[');
    for (int i = 0; i < WORKERS; i++)
        for (int j = 0; j < KEPT; j++)
            if (kept[i][j]) {
                json_address(NULL, arena_of(kept[i][j]));
                break;
            }
    json_close(']');
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "healthy_server", 1);
    healthy = 1;
    mallopt(M_ARENA_MAX, 8);
    expect(WORKERS + 1);
    for (uintptr_t i = 0; i < WORKERS; i++)
        spawn(numbered("worker", (int)i), serve, (void *)i);
    meet();
    truth_end(details);
}
