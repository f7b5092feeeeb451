/* Blocks that nothing points at, that only leaked blocks point at, in cycles, by their middle alone, and blocks that are
 * reached from one kind of root each: see leakcases.h. The healthy twin does the same and holds or frees them all.
 *
 * --modes LIST (all; comma-separated), --library FILE: a library with variables of its own, for the mode `library`
 */
#include "truth.h"

#define TAKE(size) malloc(size)
#define TAKE_AGAIN(block, size) realloc(block, size)
#define TAKE_ALIGNED(alignment, size) memalign(alignment, size)
#define GIVE(block) free(block)
#define USABLE(block) malloc_usable_size(block)

#include "leakcases.h"

static void *volatile at_end;

static void past_end(void)
{
    char *block = lost("past end", 40);
    at_end = block + malloc_usable_size(block);
}

/* Bins point at the header of a free chunk, whose first word belongs to the block before it. */
static void before_free(void)
{
    lost("before a free chunk", 5000);
    void *large = malloc(4200);
    lost("behind a free chunk", 5000);
    free(large);
}

/* The highest address that the main arena ever gave away. */
static uintptr_t highest(void)
{
    uintptr_t found = 0, end = (uintptr_t)sbrk(0);
    for (size_t i = 0; i < LEDGER_SLOTS; i++)
        if (ledger[i].key && ~ledger[i].key > found && ~ledger[i].key < end)
            found = ~ledger[i].key;
    return found;
}

#define TOPMOST 200
static void *volatile below_top[TOPMOST];

/* So does the arena's pointer to its top: this block is the first that is cut from it. */
static void before_top(void)
{
    for (int i = 0; i < TOPMOST; i++) {
        uintptr_t before = highest();
        void *block = malloc(6000);
        clear(block);
        if ((uintptr_t)block > before) {
            note("before the top", block, 6000, LEAKED, ROOT);
            return;
        }
        below_top[i] = block;
    }
    give_up("leaks: no block was cut from the top");
}

static const struct mode modes[] = {
    MODES_FOR_ALL,
    {"past-end", past_end},
    {"before-free", before_free},
    {"before-top", before_top},
};

int main(int argc, char **argv)
{
    void *volatile local = NULL;
    local_of_main = &local;
    truth_begin(argc, argv, "leaks", 1);
    run_modes(modes, sizeof modes / sizeof *modes);
    take_malloc_info();
    write_truth(details);
    scrub();
    ready();
}
