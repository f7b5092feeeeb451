/* Somebody else moves the break between two mallocs, several times, by odd amounts: glibc leaves fenceposts
 * and counts the gap in system_mem. In the healthy twin nobody does.
 */
#include "truth.h"

#define GAPS 4
#define ROUND 12
#define BLOCK 20000

static const intptr_t amounts[GAPS] = {4096, 10000, 65536, 24};
static void *blocks[GAPS + 1][ROUND], *gaps[GAPS];

static void details(void)
{
    json_open("gaps", '[');
    for (int i = 0; i < GAPS && !healthy; i++)
        json_pair(NULL, gaps[i], (size_t)amounts[i]);
    json_close(']');
    json_address("first", blocks[0][0]);
    json_address("last", blocks[GAPS][ROUND - 1]);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "foreign_sbrk", 1);
    for (int i = 0; i <= GAPS; i++) {
        for (int j = 0; j < ROUND; j++)
            memset(blocks[i][j] = malloc(BLOCK), 0x66, BLOCK);
        if (i < GAPS && !healthy)
            memset(gaps[i] = sbrk(amounts[i]), 0xee, (size_t)amounts[i]);
    }
    for (int i = 0; i <= GAPS; i++)
        free(blocks[i][3]);
    truth_end(details);
}
