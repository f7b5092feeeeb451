/* Many small objects: the subject of benchmarks. A third of them, chosen by a seeded generator, are freed.
 *
 * --count N     (200000); 5000000 objects are 1 GB
 *
 * The truth counts the objects by usable size; it lists none. There is nothing wrong with it.
 */
#include "jetruth.h"

#define SIZES 512 /* classes of up to 8 KiB are multiples of 16, or 8 */

static size_t live[SIZES], freed[SIZES];
static size_t count;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *filled(size_t size)
{
    char *block = JE(malloc)(size);
    if (!block)
        give_up("jemalloc_small: no memory");
    memset(block, 0x6b, size);
    return block;
}

static void json_counts(const char *key, const size_t *counts)
{
    json_open(key, '[');
    for (size_t i = 0; i < SIZES; i++)
        if (counts[i]) {
            json_open(NULL, '[');
            json_number(NULL, i * 8);
            json_number(NULL, counts[i]);
            json_close(']');
        }
    json_close(']');
}

static void details(void)
{
    json_number("count", count);
    json_counts("live_by_size", live);
    json_counts("freed_by_size", freed);
}

int main(int argc, char **argv)
{
    uint32_t state = 1;
    je_begin(argc, argv, "jemalloc_small");
    note_role("main");
    count = number_option("count", 200000);
    size_t bytes = count * sizeof(void *);
    void **objects = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++) {
        objects[i] = filled(8 + next(&state) % 384);
        live[JE(sallocx)(objects[i], 0) / 8]++;
    }
    for (size_t i = 0; i < count; i++)
        if (next(&state) % 3 == 0) {
            size_t slot = JE(sallocx)(objects[i], 0) / 8;
            live[slot]--, freed[slot]++;
            JE(free)(objects[i]);
        }
    munmap(objects, bytes);
    note_thread_figures();
    je_end(details);
}
