/* Blocks freed twice, past glibc's checks as a real bug gets past them: in the tcache the program overwrites
 * the key between the two calls; in a fastbin another free lies between them. The healthy twin frees once.
 * From glibc 2.43 on there are no fastbins: then only the tcache holds a block twice.
 */
#include "truth.h"

#define CACHED 40
#define FAST 56
#define MAX_DEPTH 32

extern void REAL(free)(void *);

static void *volatile twice_cached, *volatile twice_fast, *volatile between;
static void *fill[MAX_DEPTH], *pins[4];

/* The second free is malloc's own: the ledger has the block as freed already. */
static void double_free_cached(void)
{
    free(twice_cached);
    if (healthy)
        return;
    ((size_t *)twice_cached)[1] = 0; /* a use after free: it hits the key */
    REAL(free)(twice_cached);
}

static void double_free_fast(void)
{
    for (size_t i = 0; i < tcache_depth(); i++)
        free(fill[i]);
    free(twice_fast);
    free(between);
    if (!healthy && !glibc_at_least(43))
        REAL(free)(twice_fast);
}

static void details(void)
{
    json_bool("has_fastbins", !glibc_at_least(43));
    json_address("tcache_block", twice_cached);
    json_number("tcache_usable", malloc_usable_size(pins[0]));
    json_address("fastbin_block", twice_fast);
    json_address("fastbin_between", between);
    json_number("fastbin_usable", malloc_usable_size(pins[1]));
    json_bool("tcache_twice", !healthy);
    json_bool("fastbin_twice", !healthy && !glibc_at_least(43));
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "double_free", 1);
    twice_cached = malloc(CACHED);
    pins[0] = malloc(CACHED);
    for (size_t i = 0; i < tcache_depth(); i++)
        fill[i] = malloc(FAST);
    twice_fast = malloc(FAST);
    pins[1] = malloc(FAST);
    between = malloc(FAST);
    pins[2] = malloc(FAST);
    take_malloc_info();
    double_free_cached();
    double_free_fast();
    truth_end(details);
}
