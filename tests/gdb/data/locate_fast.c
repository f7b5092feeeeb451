/* The optimised part of locate.c: in `fast`, `worker` is dead where it parks. */
#include <unistd.h>

#include "locate.h"

static int count;

int parked(int wanted)
{
    return __atomic_load_n(&count, __ATOMIC_SEQ_CST) == wanted;
}

__attribute__((noinline)) static void park(void)
{
    __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    for (;;)
        pause();
}

__attribute__((noinline)) void fast(struct worker *worker)
{
    __atomic_store_n(&worker->env.goal.size, 7, __ATOMIC_SEQ_CST);
    park();
    __asm__ volatile("");
}
