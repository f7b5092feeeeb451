/* Very many small chunks, one in eight freed; nothing is wrong with them.
 *
 * --chunks N (1000000)
 */
#define LEDGER_SLOTS (1u << 21)
#include "truth.h"

static size_t chunks, freed;
static void **blocks;

static void details(void)
{
    json_number("chunks", chunks);
    json_number("freed", freed);
}

int main(int argc, char **argv)
{
    uint32_t random = 1;
    truth_begin(argc, argv, "million_chunks", 1);
    healthy = 1;
    chunks = number_option("chunks", 1000000);
    blocks = mmap(NULL, chunks * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (blocks == MAP_FAILED)
        give_up("million_chunks: no memory for the list of blocks");
    for (size_t i = 0; i < chunks; i++) {
        random = random * 1664525 + 1013904223;
        size_t size = 16 + (random >> 16) % 160;
        memset(blocks[i] = malloc(size), 0x63, size);
    }
    for (size_t i = 0; i < chunks; i += 8, freed++)
        free(blocks[i]);
    truth_end(details);
}
