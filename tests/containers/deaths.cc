// Dies in the way that its argument names. Before that it writes one line of "name=value" to standard output: what the
// core must say. Its own lines are marked with their way, so that a test finds them here.
//
// deaths WAY

#include <sys/mman.h>
#include <sys/syscall.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#define AWAY __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))

struct Record {
    char pad[24];
    int value;
};

class DiskError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

static volatile int zero;
static const int constant[2048] = {1};
static Record *volatile nowhere;
static char *volatile sink;

static void say(const void *address)
{
    printf("tid=%ld address=%#lx\n", syscall(SYS_gettid), (unsigned long)address);
    fflush(stdout);
}

AWAY static void die_null()
{
    say(&nowhere->value);
    nowhere->value = 1;  // null
}

AWAY static void die_wild()
{
    char *page = (char *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    say(page + 8);
    page[8] = 1;  // wild
}

AWAY static void die_noncanonical()
{
    sink = (char *)0x6161616161616161;
    say(nullptr);
    *sink = 1;  // noncanonical
}

AWAY static int recurse(int depth)
{
    char room[512];
    memset(room, depth, sizeof room);
    sink = room;
    return recurse(depth + 1) + room[depth & 255];  // overflow
}

static void *overflowing(void *)
{
    say(nullptr);
    recurse(0);
    return nullptr;
}

AWAY static void die_overflow()
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_create(&thread, &attributes, overflowing, nullptr);
    pthread_join(thread, nullptr);
}

AWAY static void die_overflow_of_main()
{
    say(nullptr);
    recurse(0);
}

AWAY static void die_free()
{
    char *volatile block = (char *)malloc(24);
    sink = block;
    say(nullptr);
    free(sink);
    free(sink);  // free
}

AWAY static void die_assert()
{
    say(nullptr);
    assert(zero == 1 && "the queue\thas entries");  // assert
}

AWAY static void die_fortify()
{
    char *text = strdup("much longer than it may be");
    char room[8];
    say(nullptr);
    strcpy(room, text);  // fortify
    sink = room;
}

AWAY static void die_smash()
{
    char room[8];
    sink = room;
    say(nullptr);
    for (int at = 0; at < 64; at++)
        sink[at] = 'x';
}  // smash

AWAY static void die_throw()
{
    try {
        throw 1;
    } catch (int) {
    }
    say(nullptr);
    throw DiskError("disk is full");  // throw
}

AWAY static void die_fpe()
{
    say(nullptr);
    zero = 7 / zero;  // fpe
}

AWAY static void die_raise()
{
    say(nullptr);
    raise(SIGQUIT);  // raise
}

AWAY static void die_outside()
{
    say(nullptr);
    for (;;)
        pause();  // outside
}

AWAY static void die_readonly()
{
    say(&constant[1024]);
    *(volatile int *)&constant[1024] = 7;  // readonly
}

AWAY static void die_jump()
{
    say(nullptr);
    void (*volatile function)() = (void (*)())nowhere;
    function();  // jump
    sink = nullptr;
}

AWAY static void die_bus()
{
    FILE *file = tmpfile();
    if (ftruncate(fileno(file), 8192))
        exit(3);
    char *page = (char *)mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    if (ftruncate(fileno(file), 0))
        exit(3);
    say(page + 8);
    page[8] = 1;  // bus
}

static void handler(int)
{
    signal(SIGABRT, SIG_DFL);
    abort();
}

AWAY static void die_handled()
{
    signal(SIGSEGV, handler);
    say(&nowhere->value);
    nowhere->value = 1;  // handled
}

AWAY static void die_asan()
{
    char *volatile block = (char *)malloc(24);
    free(block);
    say(block + 4);
    block[4] = 1;  // asan
}

static const struct {
    const char *name;
    void (*die)();
} ways[] = {
    {"null", die_null}, {"wild", die_wild}, {"noncanonical", die_noncanonical}, {"overflow", die_overflow},
    {"overflow-of-main", die_overflow_of_main}, {"free", die_free}, {"assert", die_assert}, {"fortify", die_fortify},
    {"smash", die_smash}, {"throw", die_throw}, {"fpe", die_fpe}, {"raise", die_raise}, {"outside", die_outside},
    {"readonly", die_readonly}, {"jump", die_jump}, {"bus", die_bus}, {"handled", die_handled},
    {"asan", die_asan},
};

int main(int argc, char **argv)
{
    setenv("LIBC_FATAL_STDERR_", "1", 1);
    for (const auto &way : ways)
        if (argc > 1 && !strcmp(argv[1], way.name))
            way.die();
    return 2;
}
