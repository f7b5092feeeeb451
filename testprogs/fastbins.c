/* Freed chunks in fastbins: each class fills the tcache first. glibc 2.43 has no fastbins; there the same
 * chunks go to the unsorted list. The healthy twin frees only what the tcache takes.
 */
#include "truth.h"

#define CLASSES 3
#define EXTRA 5
#define MAX_DEPTH 32

static const size_t sizes[CLASSES] = {20, 36, 52};
static void *cached[CLASSES][MAX_DEPTH], *fast[CLASSES][EXTRA], *pins[CLASSES][EXTRA + 1];
static size_t depth;

static void prepare(int c)
{
    for (size_t i = 0; i < depth; i++)
        cached[c][i] = malloc(sizes[c]);
    for (int i = 0; i < EXTRA; i++) {
        pins[c][i] = malloc(sizes[c]); /* so that no two freed chunks touch */
        fast[c][i] = malloc(sizes[c]);
    }
    pins[c][EXTRA] = malloc(sizes[c]);
}

static void release(int c)
{
    for (size_t i = 0; i < depth; i++)
        free(cached[c][i]);
    for (int i = 0; i < EXTRA && !healthy; i++)
        free(fast[c][i]);
}

static void details(void)
{
    json_bool("has_fastbins", !glibc_at_least(43));
    json_number("depth", depth);
    json_open("classes", '[');
    for (int c = 0; c < CLASSES; c++) {
        json_open(NULL, '{');
        json_number("usable", malloc_usable_size(pins[c][0]));
        json_addresses("tcache", cached[c], depth);
        json_addresses("fast", fast[c], healthy ? 0 : EXTRA);
        json_close('}');
    }
    json_close(']');
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "fastbins", 1);
    depth = tcache_depth();
    for (int c = 0; c < CLASSES; c++)
        prepare(c);
    for (int c = 0; c < CLASSES; c++)
        release(c);
    truth_end(details);
}
