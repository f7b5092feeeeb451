/* Large blocks in mappings of their own: plain, aligned to a page, 64 KiB and 2 MiB, and resized by mremap.
 * Nothing is wrong with them; the healthy twin frees half of them.
 */
#include "truth.h"

#define MAX_BLOCKS 16

static struct {
    void *block;
    const char *how;
} made[MAX_BLOCKS];
static int count;

static void keep(void *block, const char *how)
{
    memset(block, 0x6d, 64);
    made[count].block = block;
    made[count++].how = how;
}

static void details(void)
{
    struct sum chunks = {0, 0};
    json_open("blocks", '[');
    for (int i = 0; i < count; i++) {
        json_open(NULL, '{');
        json_address("address", made[i].block);
        json_text("how", made[i].how);
        json_bool("mmapped", is_mmapped(made[i].block));
        json_number("usable", malloc_usable_size(made[i].block));
        json_number("prev_size", size_field(made[i].block)[-1]);
        json_number("chunk_size", chunk_size(made[i].block));
        json_close('}');
        if (is_mmapped(made[i].block))
            add_to(&chunks, chunk_size(made[i].block) + size_field(made[i].block)[-1]);
    }
    json_close(']');
    json_sum("mapped", chunks);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "mmapped_blocks", 1);
    mallopt(M_MMAP_THRESHOLD, 128 * KIB); /* setting it also stops its growth */
    keep(malloc(200 * KIB), "malloc");
    keep(malloc(3 * MIB + 12345), "malloc");
    keep(calloc(7, 100 * KIB), "calloc");
    keep(memalign(4096, 300 * KIB), "memalign 4096");
    keep(memalign(64 * KIB, 300 * KIB), "memalign 65536");
    keep(memalign(2 * MIB, 2 * MIB), "memalign 2097152");
    keep(memalign(2 * MIB, 150 * KIB), "memalign 2097152");
    keep(realloc(malloc(200 * KIB), 5 * MIB), "grown");
    keep(realloc(malloc(4 * MIB), 1 * MIB), "shrunk");
    keep(realloc(memalign(64 * KIB, 300 * KIB), 900 * KIB), "aligned, grown");
    if (healthy)
        while (count > 5)
            free(made[--count].block);
    truth_end(details);
}
