/* The main arena is not contiguous: mappings stand right above the heap, so that brk fails and malloc goes
 * on in memory from mmap, several times. The healthy twin has free way.
 */
#include "truth.h"

#define BLOCKS 300
#define BLOCK 12000

static void *blocks[BLOCKS], *barriers[2];

static void *block_brk(void)
{
    char *end = sbrk(0);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *at = (void *)(((uintptr_t)end + page - 1) & ~(page - 1));
    void *barrier = mmap(at, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (barrier == MAP_FAILED)
        give_up("noncontiguous: cannot place the mapping");
    return barrier;
}

/* Anything between two later segments, so that they do not touch. */
static void *spacer(void)
{
    return mmap(NULL, 64 * KIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void details(void)
{
    json_address("barrier", barriers[0]);
    json_address("spacer", barriers[1]);
    json_bool("contiguous", healthy);
    json_address("first", blocks[0]);
    json_address("last", blocks[BLOCKS - 1]);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "noncontiguous", 1);
    for (int i = 0; i < BLOCKS; i++) {
        if (i == BLOCKS / 10 && !healthy)
            barriers[0] = block_brk();
        if (i == BLOCKS / 2 && !healthy)
            barriers[1] = spacer();
        memset(blocks[i] = malloc(BLOCK), 0x6e, BLOCK);
    }
    for (int i = 0; i < BLOCKS; i += 5)
        free(blocks[i]);
    truth_end(details);
}
