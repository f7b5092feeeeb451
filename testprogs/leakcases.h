/* Blocks that are leaked, possibly leaked and reached, in every way there is; each is stated by name with what is to be
 * said of it. Included by leaks.c and jemalloc_leaks.c, after truth.h or jetruth.h; they say what TAKE, TAKE_AGAIN,
 * GIVE and USABLE are, and which modes there are.
 *
 * A block that is to look leaked must have no copy of its address anywhere: addresses are kept as complements, makers
 * run deeper in the stack than what scrub() then overwrites, and memory is cleared before it is used.
 */
#ifndef LEAKCASES_H
#define LEAKCASES_H

/* ---- what is stated ---- */

#define MAX_TOLD 256
enum expected { LEAKED, MAYBE, REACHED };
static const char *const state_names[] = {"leaked", "possibly leaked", "reached"};

/* What a leaked block is among leaked blocks: of each cycle that nothing leads to, the lowest is the leak root. */
#define ROOT "leak root"
#define INDIRECT "indirect"
#define CYCLE "first cycle"
#define OTHER_CYCLE "other cycle"

static struct told {
    const char *name;
    uintptr_t key; /* ~address */
    size_t asked, usable;
    enum expected state;
    const char *role;
    size_t clear; /* bits that, if they are cleared, make it reached; 0: none do */
    int freed;
} told[MAX_TOLD];
static size_t told_count;
static void *volatile kept[MAX_TOLD]; /* by the healthy twin */
static uintptr_t cached_keys[3]; /* ~addresses of blocks that a thread's cache keeps */

static size_t usable_of(void *block) { return USABLE(block); }

static void clear(void *block)
{
    volatile char *bytes = block;
    for (size_t i = 0, size = usable_of(block); i < size; i++)
        bytes[i] = 0;
}

/* State a block; the healthy twin holds it instead. Returns its number in `told`. */
static size_t note(const char *name, void *block, size_t asked, enum expected state, const char *role)
{
    if (told_count == MAX_TOLD || !block)
        give_up("leaks: too many blocks, or no memory");
    told[told_count] = (struct told){name, ~(uintptr_t)block, asked, usable_of(block), state, role, 0, 0};
    if (healthy) {
        kept[told_count] = block;
        told[told_count].state = REACHED;
        told[told_count].role = "";
    }
    return told_count++;
}

static void *made(const char *name, size_t asked, enum expected state, const char *role)
{
    void *block = TAKE(asked);
    clear(block);
    note(name, block, asked, state, role);
    return block;
}

static void *lost(const char *name, size_t asked) { return made(name, asked, LEAKED, ROOT); }
static void *held(const char *name, size_t asked) { return made(name, asked, REACHED, ""); }

/* Put a pointer into word `at` of a block or of any memory. */
static void point(void *from, size_t at, void *to) { ((void *volatile *)from)[at] = to; }

/* The address of the block stated last, or by number. */
static void *told_block(size_t number) { return (void *)~told[number].key; }

/* The healthy twin gives back every third of what it holds. */
static void free_some(void)
{
    for (size_t i = 0; healthy && i < told_count; i += 3) {
        GIVE(kept[i]);
        kept[i] = NULL;
        told[i].freed = 1;
    }
}

/* ---- leaving no copies behind ---- */

#define SCRUBBED (64 * 1024)

static void clear_registers(void)
{
#if defined __x86_64__
    __asm__ volatile("xor %%eax,%%eax\n xor %%ecx,%%ecx\n xor %%edx,%%edx\n xor %%esi,%%esi\n xor %%edi,%%edi\n"
                     "xor %%r8d,%%r8d\n xor %%r9d,%%r9d\n xor %%r10d,%%r10d\n xor %%r11d,%%r11d\n"
                     "pxor %%xmm0,%%xmm0\n pxor %%xmm1,%%xmm1\n pxor %%xmm2,%%xmm2\n pxor %%xmm3,%%xmm3\n"
                     "pxor %%xmm4,%%xmm4\n pxor %%xmm5,%%xmm5\n pxor %%xmm6,%%xmm6\n pxor %%xmm7,%%xmm7\n"
                     "pxor %%xmm8,%%xmm8\n pxor %%xmm9,%%xmm9\n pxor %%xmm10,%%xmm10\n pxor %%xmm11,%%xmm11\n"
                     "pxor %%xmm12,%%xmm12\n pxor %%xmm13,%%xmm13\n pxor %%xmm14,%%xmm14\n pxor %%xmm15,%%xmm15\n"
                     ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
#elif defined __i386__
    __asm__ volatile("xor %%eax,%%eax\n xor %%ecx,%%ecx\n xor %%edx,%%edx\n" ::: "eax", "ecx", "edx", "cc", "memory");
#endif
}

/* Overwrite what the functions that were called before have left in the stack and in registers. */
static __attribute__((noinline)) void scrub(void)
{
    char room[SCRUBBED];
    memset(room, 0, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory");
    clear_registers();
}

/* ---- leaked blocks among themselves ---- */

static void plain(void)
{
    lost("plain small", 24);
    lost("plain empty", 0);
    lost("plain large", 5000);
    strcpy(lost("plain text", 100), "nobody knows where this is");
}

static void chain(void)
{
    void *first = lost("chain first", 64);
    void *second = made("chain second", 200, LEAKED, INDIRECT);
    point(first, 3, second);
    point(second, 0, made("chain third", 300, LEAKED, INDIRECT));
    point(second, 1, made("chain by its middle", 400, LEAKED, INDIRECT));
    ((char *volatile *)second)[1] += 32;
}

static void shared(void)
{
    void *below = made("shared", 80, LEAKED, INDIRECT);
    point(lost("shared one", 40), 0, below);
    point(lost("shared other", 56), 1, below);
}

static void cycle(void)
{
    void *tail = made("cycle tail before", 40, LEAKED, INDIRECT);
    void *one = made("cycle one", 72, LEAKED, CYCLE);
    void *two = made("cycle two", 88, LEAKED, CYCLE);
    void *three = made("cycle three", 104, LEAKED, CYCLE);
    point(one, 0, two);
    point(two, 1, three);
    point(three, 2, one);
    point(three, 3, tail);
    point(two, 0, made("cycle tail behind", 120, LEAKED, INDIRECT));
    void *self = made("cycle of one", 136, LEAKED, OTHER_CYCLE);
    point(self, 0, self);
}

/* A cycle below a leaked block is no leak of its own. */
static void below(void)
{
    void *one = made("below one", 48, LEAKED, INDIRECT);
    void *two = made("below two", 48, LEAKED, INDIRECT);
    point(one, 0, two);
    point(two, 0, one);
    point(lost("below root", 48), 0, one);
}

/* ---- pointers to the middle ---- */

static void *volatile into_middle, *volatile to_start;

static void interior(void)
{
    char *middle = made("interior", 96, MAYBE, "");
    into_middle = middle + 16;
    void *next = made("interior then start", 64, MAYBE, "");
    point(middle, 4, next);
    point(next, 1, made("interior then start twice", 64, MAYBE, ""));
    void *holder = held("interior holder", 64);
    to_start = holder;
    point(holder, 2, (char *)made("interior from a block", 200, MAYBE, "") + WORD);
}

/* Pointers to beginnings win, in whatever order memory is looked at. */
static void *volatile fixpoint_words[3];

static void fixpoint(void)
{
    char *before = held("fixpoint before", 64);
    void *holder = held("fixpoint holder", 64);
    char *behind = held("fixpoint behind", 64);
    void *below_it = held("fixpoint below", 64);
    fixpoint_words[0] = before + 24;
    fixpoint_words[1] = behind + 24;
    fixpoint_words[2] = holder;
    point(holder, 0, before);
    point(holder, 1, behind);
    point(behind, 2, below_it);
    point(lost("fixpoint leaked", 64), 0, before);
}

/* Half a word off: nobody looks there. */
static char packed[64] __attribute__((aligned(16)));

static void unaligned(void)
{
    void *block = lost("unaligned", 72);
    memcpy(packed + WORD + WORD / 2, &block, sizeof block);
}

/* ---- pointers with tags ---- */

static volatile uintptr_t tags[3];

static void tagged(void)
{
    tags[0] = (uintptr_t)made("tagged low", 48, MAYBE, "") | 1;
    told[told_count - 1].clear = 1;
    void *holder = held("tagged holder", 48);
    tags[1] = (uintptr_t)holder;
    point(holder, 1, (char *)made("tagged in a block", 48, MAYBE, "") + 3);
    told[told_count - 1].clear = 3;
    if (WORD == 4)
        return;
    tags[2] = (uintptr_t)lost("tagged high", 48) | (uintptr_t)0xa5 << (WORD * 8 - 8);
    told[told_count - 1].clear = (size_t)0xa5 << (WORD * 8 - 8);
}

/* ---- what roots there are ---- */

static void *volatile in_data = &healthy, *volatile in_bss;

static void globals(void)
{
    in_data = held("data", 32);
    in_bss = held("bss", 32);
    void *block = in_bss;
    for (int i = 0; i < 5; i++, block = *(void **)block)
        point(block, 0, held("list from bss", 32 + 16 * (size_t)i));
}

/* Each of these threads parks with what only it has; `parked` counts them. */
static volatile int parked;
static volatile size_t register_key, stack_key, dead_key, tls_key;

/* Park for good with an address in a register that calls preserve, and nowhere else; counts before it sleeps. */
static __attribute__((noreturn)) void park_with(volatile size_t *key)
{
#if defined __x86_64__
    __asm__ volatile("mov %0,%%r12\n not %%r12\n lock incl %1\n 1: mov $34,%%eax\n syscall\n jmp 1b\n"
                     ::"m"(*key), "m"(parked) : "rax", "rcx", "r11", "r12", "memory");
#elif defined __i386__
    __asm__ volatile("mov %0,%%esi\n not %%esi\n lock incl %1\n 1: mov $29,%%eax\n int $0x80\n jmp 1b\n"
                     ::"m"(*key), "m"(parked) : "eax", "esi", "memory");
#else
    (void)key;
    give_up("leaks: its threads need x86");
#endif
    __builtin_unreachable();
}

static void *by_register(void *argument)
{
    (void)argument;
    park_with(&register_key);
}

static void *by_stack(void *argument)
{
    void *volatile local = (void *)~stack_key;
    __atomic_add_fetch(&parked, 1, __ATOMIC_SEQ_CST);
    hold();
    return local ? argument : NULL;
}

/* A frame that is gone by the time its thread parks; nothing is called after it. */
static __attribute__((noinline)) void leave_in_frame(void)
{
    void *room[1024];
    room[2] = (void *)~dead_key;
    __asm__ volatile("" ::"r"(room) : "memory");
    clear_registers();
}

static volatile size_t no_key = ~(size_t)0;

static void *by_dead_frame(void *argument)
{
    (void)argument;
    leave_in_frame();
    park_with(&no_key);
}

/* A thread that ends: its stack stays mapped, for the next one. */
static void *by_dead_stack(void *argument)
{
    leave_in_frame();
    return argument;
}

static __thread void *volatile own, *volatile own_initialised = &healthy;

static __attribute__((noinline)) void set_own(void)
{
    own = (void *)~tls_key;
    own_initialised = *(void **)own; /* the block that it points to, which forgets it */
    point(own, 0, NULL);
}

static void *by_tls(void *argument)
{
    set_own();
    scrub();
    __atomic_add_fetch(&parked, 1, __ATOMIC_SEQ_CST);
    hold();
    return argument;
}

static void park(const char *name, void *(*run)(void *))
{
    int before = parked;
    spawn(name, run, NULL);
    while (parked == before)
        sched_yield();
}

static __attribute__((noinline)) void make_for_threads(void)
{
    register_key = ~(uintptr_t)held("register", 48);
    stack_key = ~(uintptr_t)held("stack of a thread", 48);
    void *behind = held("tls", 48);
    tls_key = ~(uintptr_t)behind;
    point(behind, 0, held("tls initialised", 48));
}

static void threads(void)
{
    make_for_threads();
    scrub();
    park("by-register", by_register);
    park("by-stack", by_stack);
    park("by-tls", by_tls);
}

static void dead_frame(void)
{
    dead_key = ~(uintptr_t)lost("dead frame", 48);
    scrub();
    park("dead-frame", by_dead_frame);
}

static void dead_stack(void)
{
    dead_key = ~(uintptr_t)lost("dead stack", 48);
    scrub();
    pthread_join(spawn("dead-stack", by_dead_stack, NULL), NULL);
}

static void tls(void) { own = held("tls of main", 48); }

static void *volatile *local_of_main;

static void stack(void) { *local_of_main = held("stack of main", 48); }

/* Keys beyond the first 32 lie in a block that libc allocates. */
static void specific(void)
{
    pthread_key_t key;
    for (int i = 0; i < 40; i++) {
        pthread_key_create(&key, NULL);
        if (i % 20 == 10)
            pthread_setspecific(key, held("thread-specific", 48));
    }
    pthread_setspecific(key, held("thread-specific, second level", 48));
}

static void *mapped(int protection, int flags, int file)
{
    void *page = mmap(NULL, 4096, protection, flags, file, 0);
    if (page == MAP_FAILED)
        give_up("leaks: cannot map a page");
    return page;
}

static void pages(void)
{
    int private = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    point(mapped(both, private, -1), 7, held("page", 48));
    point(mapped(both, MAP_SHARED | MAP_ANONYMOUS, -1), 9, held("shared page", 48));
    void *page = mapped(both, private, -1);
    point(page, 511 * 8 / WORD, held("read-only page", 48));
    mprotect(page, 4096, PROT_READ);
    int file = open("/proc/self/exe", O_RDONLY);
    point(mapped(both, MAP_PRIVATE, file), 11, held("file page", 48));
    close(file);
}

/* ---- free blocks ---- */

#define FILL 40 /* more than any tcache keeps */

static void freed(void)
{
    void *holder = TAKE(72), *filled[FILL];
    clear(holder);
    point(holder, 5, lost("only from a freed block", 64));
    for (int i = 0; i < FILL; i++)
        filled[i] = TAKE(3000);
    for (int i = 0; i < FILL; i++) {
        clear(filled[i]);
        point(filled[i], 20, told_block(told_count - 1));
    }
    for (int i = 0; i < FILL; i++)
        GIVE(filled[i]);
    GIVE(holder);
}

static void cached(void)
{
    void *blocks[3];
    for (int i = 0; i < 3; i++)
        clear(blocks[i] = TAKE(1000));
    point(blocks[1], 9, lost("only from a cached block", 64));
    for (int i = 0; i < 3; i++) {
        cached_keys[i] = ~(uintptr_t)blocks[i];
        GIVE(blocks[i]);
    }
}

/* ---- other places for blocks ---- */

static void *volatile from_arena;

static void fill_arena(void)
{
    lost("arena of a thread that ended", 200);
    from_arena = held("arena of a thread that ended, held", 200);
}

static void *work_and_end(void *argument)
{
    fill_arena();
    scrub();
    return argument;
}

static void arena(void) { pthread_join(spawn("ends", work_and_end, NULL), NULL); }

#define HUGE_BLOCK 300000 /* glibc maps it; jemalloc gives it an extent of its own */
static void *volatile huge_held, *volatile into_huge;

static void huge(void)
{
    void *block = lost("huge", HUGE_BLOCK);
    huge_held = held("huge, held", HUGE_BLOCK + 50000);
    point(block, 30001, made("huge below", 48, LEAKED, INDIRECT));
    point(huge_held, 30001, held("huge, held, below", 48));
    into_huge = (char *)made("huge by its middle", HUGE_BLOCK, MAYBE, "") + 8192;
}

static void *volatile grown_held;

static void *grown(const char *name, enum expected state, const char *role)
{
    void *block = TAKE(40), *wall = TAKE(40);
    clear(block);
    block = TAKE_AGAIN(block, 4000);
    clear(block);
    note(name, block, 4000, state, role);
    GIVE(wall);
    return block;
}

static void realloced(void)
{
    grown("realloc lost", LEAKED, ROOT);
    grown_held = grown("realloc held", REACHED, "");
    point(grown_held, 2, grown("realloc below", REACHED, ""));
}

static void *volatile aligned_held;

static void aligned(void)
{
    void *block = TAKE_ALIGNED(256, 500);
    clear(block);
    note("aligned lost", block, 500, LEAKED, ROOT);
    aligned_held = block = TAKE_ALIGNED(1024, 500);
    clear(block);
    note("aligned held", block, 500, REACHED, "");
}

/* ---- what libc allocates for itself: none of it is stated, all of it is reached ---- */

static void do_nothing(void) {}

static void libc(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    fgetc(file);
    setvbuf(stdout, NULL, _IOFBF, 0);
    printf("buffered\n");
    fflush(stdout);
    for (int i = 0; i < 70; i++)
        atexit(do_nothing);
    setenv("leaks_one", "some value that is long enough", 1);
    setenv("leaks_two", "some value that is long enough", 1);
}

/* Values that setenv has replaced stay, before glibc 2.41, in libc's tree, which keeps a colour in the lowest bit of
 * its pointers (misc/tsearch.c): without --clear 1 these are possibly leaked. Not among all modes: it is to be named. */
static void environment(void)
{
    char value[64];
    for (int i = 0; i < 20; i++) {
        snprintf(value, sizeof value, "a value that is replaced %d", i);
        setenv("leaks_again", value, 1);
    }
}

/* ---- a library of the caller's: --library FILE ---- */

extern void *dlopen(const char *, int) __attribute__((weak));
extern void *dlsym(void *, const char *) __attribute__((weak));

/* Its variables: a thread-local one (dynamic, as it comes late) and one in its data. */
static void library(void)
{
    const char *file = text_option("library", NULL);
    if (!file || !dlopen || !dlsym)
        return;
    void *opened = dlopen(file, 2);
    if (!opened)
        give_up("leaks: the library does not open");
    *((void **(*)(void))dlsym(opened, "of_thread"))() = held("tls of a library", 48);
    *((void **(*)(void))dlsym(opened, "of_all"))() = held("data of a library", 48);
}

/* ---- modes ---- */

struct mode {
    const char *name;
    void (*run)(void);
};

#define MODES_FOR_ALL \
    {"stack", stack}, {"plain", plain}, {"chain", chain}, {"shared", shared}, {"cycle", cycle}, {"below", below}, \
        {"interior", interior}, {"fixpoint", fixpoint}, {"unaligned", unaligned}, {"tagged", tagged}, \
        {"globals", globals}, {"threads", threads}, {"dead-frame", dead_frame}, {"tls", tls}, \
        {"specific", specific}, {"pages", pages}, \
        {"huge", huge}, {"realloc", realloced}, {"aligned", aligned}, {"libc", libc}, {"environment", environment}, \
        {"library", library}, {"arena", arena}, {"dead-stack", dead_stack}, {"freed", freed}, {"cached", cached}

static int is_wanted(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length]))
            return 1;
    return !list && strcmp(name, "environment");
}

static __attribute__((noinline)) void run_modes(const struct mode *modes, size_t count)
{
    const char *list = text_option("modes", NULL);
    for (size_t i = 0; i < count; i++)
        if (is_wanted(list, modes[i].name)) {
            modes[i].run();
            scrub();
        }
    free_some();
}

static void json_told(const struct told *one)
{
    json_open(NULL, '{');
    json_text("name", one->name);
    json_address("address", (void *)~one->key);
    json_number("asked", one->asked);
    json_number("usable", one->usable);
    json_text("state", state_names[one->state]);
    json_text("role", one->role);
    json_address("clear", (void *)one->clear);
    json_close('}');
}

static void details(void)
{
    json_open("blocks", '[');
    for (size_t i = 0; i < told_count; i++)
        if (!told[i].freed)
            json_told(&told[i]);
    json_close(']');
    json_open("cached", '[');
    for (int i = 0; i < 3; i++)
        if (cached_keys[i])
            json_address(NULL, (void *)~cached_keys[i]);
    json_close(']');
}

#endif
