/* What leaks.c shows, in jemalloc. See leakcases.h. --modes LIST, --library FILE */
#include "jetruth.h"

extern void *JE(rallocx)(void *, size_t, int) WEAK;

#define TAKE(size) JE(malloc)(size)
#define TAKE_AGAIN(block, size) JE(rallocx)(block, size, 0)
#define TAKE_ALIGNED(alignment, size) JE(aligned_alloc)(alignment, size)
#define GIVE(block) JE(free)(block)
#define USABLE(block) JE(sallocx)(block, 0)

#include "leakcases.h"

static const struct mode modes[] = {MODES_FOR_ALL};

int main(int argc, char **argv)
{
    void *volatile local = NULL;
    local_of_main = &local;
    je_begin(argc, argv, "jemalloc_leaks");
    run_modes(modes, sizeof modes / sizeof *modes);
    je_tell(details);
    scrub();
    ready();
}
