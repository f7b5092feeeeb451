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
static size_t remaps;

static void keep(void *block, const char *how)
{
    memset(block, 0x6d, 64);
    made[count].block = block;
    made[count++].how = how;
}

/* realloc() that must change the number of pages; counts what mremap did. */
static void *resize(void *block, size_t size)
{
    remaps++;
    return realloc(block, size);
}

/* A mapping's bytes; from 2.43 on the chunk's size leaves out the header, and prev_size carries a flag. */
static size_t mapping_offset(void *block) { return size_field(block)[-1] & ~(size_t)1; }

static size_t mapping_bytes(void *block)
{
    return mapping_offset(block) + chunk_size(block) + (glibc_at_least(43) ? HEADER : 0);
}

static void details(void)
{
    struct sum mappings = {0, 0};
    json_open("blocks", '[');
    for (int i = 0; i < count; i++) {
        void *block = made[i].block;
        json_open(NULL, '{');
        json_address("address", block);
        json_text("how", made[i].how);
        json_bool("mmapped", is_mmapped(block));
        json_number("usable", malloc_usable_size(block));
        if (is_mmapped(block)) {
            json_pair("mapping", chunk_of(block) - mapping_offset(block), mapping_bytes(block));
            add_to(&mappings, mapping_bytes(block));
        }
        json_close('}');
    }
    json_close(']');
    json_sum("mapped", mappings);
    /* 2.43's mremap forgets the header in mp_.mmapped_mem: it stays too large by so much. */
    json_number("mmapped_mem_excess", glibc_at_least(43) ? remaps * HEADER : 0);
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
    keep(resize(malloc(200 * KIB), 5 * MIB), "grown");
    keep(resize(malloc(4 * MIB), 1 * MIB), "shrunk");
    keep(resize(memalign(64 * KIB, 300 * KIB), 900 * KIB), "aligned, grown");
    if (healthy)
        while (count > 5)
            free(made[--count].block);
    truth_end(details);
}
