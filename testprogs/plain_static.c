/* A small heap in a statically linked program: no libc.so, no loader. */
#include "truth.h"

#define BLOCKS 200

static void *blocks[BLOCKS];

static void details(void)
{
    json_addresses("blocks", blocks, BLOCKS);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "plain_static", 1);
    healthy = 1;
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(20 + i * 37 % 2000), 0x73, 20);
    for (size_t i = 0; i < BLOCKS; i += 3)
        free(blocks[i]);
    truth_end(details);
}
