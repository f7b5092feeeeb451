/* A write past the end of a block breaks the size of the next chunk. The healthy twin fills exactly what
 * malloc_usable_size allows.
 *
 * --extra BYTES (8): how far the write goes beyond the block
 */
#define DAMAGED_HEADERS 1
#include "truth.h"

#define BLOCKS 12
#define BLOCK 136
#define VICTIM 5

static char *blocks[BLOCKS];
static size_t old_size, extra;

static void details(void)
{
    json_number("extra", healthy ? 0 : extra);
    json_address("overrun_block", blocks[VICTIM]);
    json_address("before_chunk", chunk_of(blocks[VICTIM]));
    json_address("damaged_chunk", chunk_of(blocks[VICTIM + 1]));
    json_address("size_field", size_field(blocks[VICTIM + 1]));
    json_number("size_before", old_size);
    json_number("size_now", *size_field(blocks[VICTIM + 1]));
    json_address("next_good_chunk", chunk_of(blocks[VICTIM + 2]));
    json_addresses("blocks", (void **)blocks, BLOCKS);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "overrun", 1);
    extra = number_option("extra", WORD);
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK), 0x30 + i, BLOCK);
    take_malloc_info();
    old_size = *size_field(blocks[VICTIM + 1]);
    memset(blocks[VICTIM], 'A', malloc_usable_size(blocks[VICTIM]) + (healthy ? 0 : extra));
    truth_end(details);
}
