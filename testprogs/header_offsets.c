/* An allocator on top of malloc, as many programs have it: the first bytes of each block are a header with the size, and
 * the program keeps pointers to what follows. Chains of blocks of many sizes hang on a table that is such a block too;
 * some lead to plain blocks by start pointers. All are reached. Some blocks like them are lost, one with a chain behind
 * it, and a few are kept by a pointer farther into them: possibly leaked. The healthy twin has neither.
 *
 * --header BYTES (16), --blocks N (3000), --one-size: all blocks have one size
 */
#define LEDGER_SLOTS (1u << 17)
#include "truth.h"

#include "stated.h"

#define CHAINS 64
#define LOST 60
#define INNER 5
#define PLAIN 50

static size_t header, blocks, made;
static void ***table;

static void *take(size_t size)
{
    char *block = calloc(1, header + size);
    if (!block)
        give_up("header_offsets: no memory");
    *(size_t *)block = size;
    made++;
    return block + header;
}

static size_t size_of_next(size_t number) { return flag_option("one-size") ? 104 : 24 + number * 37 % 400; }

static __attribute__((noinline)) void make_chains(void)
{
    table = take(CHAINS * sizeof *table);
    for (size_t i = 0; i < blocks; i++) {
        void **block = take(size_of_next(i));
        block[0] = table[i % CHAINS];
        table[i % CHAINS] = block;
        if (i < PLAIN)
            block[1] = calloc(1, 40);
    }
}

static __attribute__((noinline)) void make_lost(void)
{
    void **before = NULL;
    for (size_t i = 0; i < LOST; i++) {
        size_t size = size_of_next(i), whole = header + size;
        void **block = take(size);
        int last = i + 1 == LOST;
        state_block("lost", (char *)block - header, whole, "leaked", i < 3 && i ? "indirect" : "leak root");
        if (i < 3 && before)
            before[0] = block; /* the first leads to the second, that to the third */
        before = last ? NULL : block;
    }
    for (size_t i = 0; i < INNER; i++) {
        char *block = take(500);
        state_block("inner", block - header, header + 500, "possibly leaked", "");
        table[i][2] = block + 8 * (10 + 3 * i);
    }
}

static void details(void)
{
    json_stated();
    json_number("header", header);
    json_number("behind_headers", 1 + blocks);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "header_offsets", 1);
    header = number_option("header", 16);
    blocks = number_option("blocks", 3000);
    make_chains();
    if (!healthy)
        make_lost();
    take_malloc_info();
    write_truth(details);
    scrub_stack();
    ready();
}
