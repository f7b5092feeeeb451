/* A hash table of N chained nodes in blocks of 25 to 48 bytes, sixty to a bin, one in a hundred in no bin; then a core.
   Sizes and bins are seeded. Argument: N (60 000 000, which makes 3 GB). */
#include <stdint.h>
#include <stdlib.h>

struct node {
    struct node *next;
    uint64_t value;
};

struct table {
    struct node **bins;
    size_t size;
} table;

static uint64_t seed = 1;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 60000000;
    table.size = count / 60 + 1;
    table.bins = calloc(table.size, sizeof *table.bins);
    for (size_t i = 0; i < count; i++) {
        struct node *node = malloc(25 + draw() % 24), **bin = &table.bins[draw() % table.size];
        node->value = i;
        node->next = i % 100 ? *bin : NULL;
        if (i % 100)
            *bin = node;
    }
    abort();
}
