/* A heap of N chunks of seeded random sizes, a third of them freed; then a core. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000;
    void **blocks = malloc(count * sizeof *blocks);
    srandom(1);
    for (size_t i = 0; i < count; i++)
        blocks[i] = malloc(16 + random() % 112);
    for (size_t i = 0; i < count; i++)
        if (random() % 3 == 0)
            free(blocks[i]);
    abort();
}
