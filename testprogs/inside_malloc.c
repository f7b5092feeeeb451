/* A thread is stopped inside malloc, holding its arena's mutex: its arena's top was made inaccessible, so
 * that malloc faults when it splits it. The fault's handler gives the page back, then states the truth.
 * At that moment the arena's top points at a chunk whose header is not written yet.
 * In the healthy twin the thread stands outside malloc.
 */
#include "truth.h"

#include <signal.h>

#define BIG 40000 /* no tcache, no bin: from top */

static char *before;
static void *seen[4], *arena, *guard;
static size_t page, fault;
static int holder;

static void details(void)
{
    json_address("arena", arena);
    json_bool("mutex_held", !healthy);
    json_number("holder", (uintmax_t)holder);
    json_address("old_top", chunk_of(before) + chunk_size(before));
    json_address("fault", (void *)fault);
    json_addresses("blocks", seen, 4);
}

static void on_fault(int signal, siginfo_t *information, void *context)
{
    (void)signal;
    (void)context;
    fault = (size_t)information->si_addr;
    mprotect(guard, 2 * page, PROT_READ | PROT_WRITE);
    truth_end(details);
}

static void *work(void *argument)
{
    holder = (int)syscall(SYS_gettid);
    for (int i = 0; i < 4; i++)
        memset(seen[i] = malloc(100 + 50 * (size_t)i), 0x69, 100);
    before = malloc(BIG);
    arena = arena_of(before);
    meet();
    if (!healthy) {
        size_t remainder = (size_t)chunk_of(before) + chunk_size(before) + BIG;
        meet();
        guard = (void *)(remainder & ~(page - 1));
        mprotect(guard, 2 * page, PROT_NONE);
        seen[0] = malloc(BIG);
        give_up("inside_malloc: malloc did not fault");
    }
    meet();
    hold();
    return argument;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    truth_begin(argc, argv, "inside_malloc", 1);
    mallopt(M_ARENA_MAX, 8);
    page = (size_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGSEGV, &action, NULL);
    expect(2);
    spawn("mallocator", work, NULL);
    meet();
    take_malloc_info();
    meet();
    if (!healthy)
        hold();
    truth_end(details);
}
