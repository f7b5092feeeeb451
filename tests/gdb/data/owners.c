/* Memory of one kind or another, all of it in use and reached; then it aborts, or with "park" says so and waits.
 *
 * malloc N    N MiB of blocks of 4000 bytes from whatever malloc this program has
 * pool N      N MiB that it maps itself, each page written
 * empty N     N MiB that it maps itself and hardly touches
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct block {
    struct block *next;
    char text[3992];
} *all;
char *pools[16];

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
    int park = 0, count = 0;
    for (int at = 1; at < argc; at++) {
        if (!strcmp(argv[at], "park")) {
            park = 1;
            continue;
        }
        size_t size = strtoul(argv[at + 1], NULL, 10) << 20;
        if (!strcmp(argv[at], "malloc")) {
            for (size_t made = 0; made < size; made += sizeof *all) {
                struct block *block = malloc(sizeof *block);
                if (!block)
                    return 3;
                memset(block->text, 'x', sizeof block->text);
                block->next = all;
                all = block;
            }
        } else {
            char *pool = pools[count++] = map(size);
            if (!pool)
                return 3;
            memset(pool, 'p', argv[at][0] == 'p' ? size : 10);
        }
        at++;
    }
    if (!park)
        abort();
    if (write(1, "parked\n", 7) == 7)
        for (;;)
            pause();
    return 1;
}
