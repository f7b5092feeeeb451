/* What memory itself allows: nodes of 16 bytes in random order, followed one after the other (chase) and read in an order
   that is known beforehand (reads). Nothing else is done; how both grow from size to size is what no kernel can beat. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct node {
    struct node *next;
    uint64_t hash;
};

static volatile uint64_t sum;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static double chase(const struct node *first)
{
    double start = now();
    uint64_t total = 0;
    for (const struct node *node = first; node; node = node->next)
        total += node->hash;
    sum = total;
    return now() - start;
}

static double reads(const struct node *nodes, const size_t *order, size_t count)
{
    double start = now();
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += nodes[order[i]].hash;
    sum = total;
    return now() - start;
}

static void shuffle(size_t *order, size_t count)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count - 1; i; i--) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        size_t other = seed % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

int main(void)
{
    for (size_t count = 10000; count <= 10000000; count *= 10) {
        struct node *nodes = malloc(count * sizeof *nodes);
        size_t *order = malloc(count * sizeof *order);
        double best[2] = {1e9, 1e9};
        shuffle(order, count);
        for (size_t i = 0; i < count; i++)
            nodes[order[i]] = (struct node){i + 1 < count ? &nodes[order[i + 1]] : NULL, i};
        for (int round = 0; round < 5; round++) {
            double taken[2] = {chase(&nodes[order[0]]), reads(nodes, order, count)};
            for (int which = 0; which < 2; which++)
                best[which] = taken[which] < best[which] ? taken[which] : best[which];
        }
        printf("%9zu  chase %.5f s  reads %.5f s\n", count, best[0], best[1]);
        free(nodes);
        free(order);
    }
}
