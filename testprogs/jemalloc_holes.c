/* Slabs that stay for the few regions of them that live: all but every sixteenth of many small blocks are freed.
 *
 * --count N     (400000) blocks of 160 bytes
 *
 * In the healthy twin as many live, but neighbours: the other slabs are empty and go back.
 */
#include "jetruth.h"

#define SIZE 160
#define KEPT 16 /* one of so many lives */

static size_t count, live;

static void details(void)
{
    json_number("count", count);
    json_number("live", live);
    json_number("size", SIZE);
}

static int lives(size_t i) { return healthy ? i < count / KEPT : i % KEPT == 0; }

int main(int argc, char **argv)
{
    je_begin(argc, argv, "jemalloc_holes");
    note_role("main");
    count = number_option("count", 400000);
    size_t bytes = count * sizeof(void *);
    void **blocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = JE(malloc)(SIZE);
        memset(blocks[i], 0x6b, SIZE);
    }
    for (size_t i = 0; i < count; i++)
        if (lives(i))
            live++;
        else
            JE(free)(blocks[i]);
    munmap(blocks, bytes);
    note_thread_figures();
    je_end(details);
}
