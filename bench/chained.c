/* A hash table of N chained nodes of 32 to 96 bytes, one chain of N/10, and N/5 other blocks of up to 2 KB, every
   second of which is freed; then a core. Sizes and bins are seeded. Argument: N (5 000 000). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct entry {
    struct entry *next;
    uint64_t hash, value;
};

struct table {
    struct entry **bins;
    size_t mask, entries;
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
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 5000000, bins = 1, others = count / 5;
    while (bins < count + count / 2)
        bins *= 2;
    table.bins = calloc(bins, sizeof *table.bins);
    table.mask = bins - 1;
    void **other = calloc(others, sizeof *other);
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = malloc(32 + draw() % 65);
        entry->hash = i % 10 ? draw() : 42;
        entry->value = i;
        entry->next = table.bins[entry->hash & table.mask];
        table.bins[entry->hash & table.mask] = entry;
        table.entries++;
        if (i % 5 == 0)
            other[i / 5] = calloc(1, 1 + draw() % 2048);
    }
    for (size_t i = 0; i < others; i += 2)
        free(other[i]);
    fflush(stdout);
    abort();
}
