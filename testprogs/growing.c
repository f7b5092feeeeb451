/* What grows step by step, beside what does not.
 *
 * --what A,B,…    what each step does (list)
 * --steps N       steps at first; `stepped()` is called behind each
 * --seed N        of all that is random (1)
 *
 * list        a MiB more of `struct session` in the list `sessions`
 * lost        a MiB more of blocks that nothing points at
 * table       8192 names more in the hash table `names`
 * rising      as traffic, and half a MiB more of `struct session` each time
 * threads     four threads more, which wait
 * arenas      four threads more at once than the step before, all of which end: their arenas stay
 * free        two MiB allocated, each block larger than those before and cut down: nothing of it is used again
 * cache       a cache fills with `struct cached` under random keys, and is full after a few steps
 * linear      the same in order: it fills at one rate, and is full after four steps
 * traffic     `struct request`, as many as chance has it: all are freed, then others allocated
 * tide        the same, but each time not far from as many as before
 * jump        in the third step four MiB at once
 * crew        twelve threads, all of which end in the step
 *
 * After its first steps it makes one for each line on standard input, and says what it holds now: a line of JSON with
 * the blocks and bytes asked for by each. At the end of its input it waits.
 */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "telling.h"
#include "lruhash.h"
#include <malloc.h>

struct session {
    struct session *next;
    char body[240];
};
struct cached {
    size_t key;
    char body[240];
};
struct request {
    struct request *next;
    char body[112];
};

#define A_STEP (MIB / sizeof(struct session))
#define SLOTS 8192
#define MOST 16384 /* requests */

struct session *sessions;
struct cached *cache[SLOTS];
struct request *requests;
struct lruhash *names;
void *kept[MOST], *jumped;

static struct tally {
    const char *name;
    size_t blocks, bytes;
} tallies[] = {{"list", 0, 0},  {"lost", 0, 0},    {"table", 0, 0},   {"rising", 0, 0}, {"threads", 0, 0},
               {"arenas", 0, 0}, {"free", 0, 0},    {"cache", 0, 0},   {"linear", 0, 0}, {"traffic", 0, 0},
               {"tide", 0, 0},   {"jump", 0, 0},    {"crew", 0, 0}};
enum { LIST, LOST, TABLE, RISING, THREADS, ARENAS, FREE, CACHE, LINEAR, TRAFFIC, TIDE, JUMP, CREW, KINDS };

static const char *what;
static uint64_t state;
static size_t step, pinned;

static size_t random_below(size_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % bound;
}

static void count(int kind, size_t blocks, size_t bytes)
{
    tallies[kind].blocks += blocks;
    tallies[kind].bytes += bytes;
}

static void lengthen(int kind, size_t number)
{
    for (size_t i = 0; i < number; i++) {
        struct session *fresh = malloc(sizeof *fresh);
        memset(fresh->body, 's', sizeof fresh->body);
        fresh->next = sessions;
        sessions = fresh;
    }
    count(kind, number, number * sizeof(struct session));
}

static void lose(void)
{
    for (size_t i = 0; i < A_STEP; i++)
        memset(malloc(200), 'l', 200);
    count(LOST, A_STEP, A_STEP * 200);
}

static void enter_names(void)
{
    if (!names)
        names = new_table(1024);
    for (size_t i = 0; i < SLOTS; i++)
        add(names, new_name(names->num), fair(names->num), 1);
    count(TABLE, SLOTS, SLOTS * sizeof(struct cached_name));
}

static void enter(int kind, size_t key)
{
    struct cached **slot = &cache[key % SLOTS];
    if (*slot) {
        free(*slot);
        count(kind, (size_t)-1, (size_t)-sizeof **slot);
    }
    *slot = malloc(sizeof **slot);
    memset(*slot, 'c', sizeof **slot);
    (*slot)->key = key;
    count(kind, 1, sizeof **slot);
}

static void fill(int kind)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (kind == CACHE)
            enter(CACHE, random_below(SLOTS));
        else if (i < SLOTS / 4)
            enter(LINEAR, step * SLOTS / 4 + i);
}

static void serve(int kind, size_t number)
{
    while (requests) {
        struct request *next = requests->next;
        free(requests);
        requests = next;
    }
    for (size_t i = 0; i < number; i++) {
        struct request *fresh = malloc(sizeof *fresh);
        memset(fresh->body, 'r', sizeof fresh->body);
        fresh->next = requests;
        requests = fresh;
    }
    tallies[kind].blocks = number;
    tallies[kind].bytes = number * sizeof(struct request);
}

static size_t not_far(void)
{
    static size_t number = MOST / 2;
    number = (number * 3 + random_below(MOST)) / 4;
    return number;
}

/* Each block is cut down in place: what is freed of it lies between two that stay, too small for the next step. */
static void waste(void)
{
    void *large[64];
    for (int i = 0; i < 64; i++) {
        large[i] = malloc((32 + step) * KIB);
        memset(large[i], 'f', (32 + step) * KIB);
    }
    for (int i = 0; i < 64; i++)
        kept[pinned++ % MOST] = realloc(large[i], 40);
    count(FREE, 64, 64 * 40);
}

static void *idle(void *argument)
{
    (void)argument;
    hold();
    return NULL;
}

static void *use_arena(void *argument)
{
    void *block = malloc(20000);
    memset(block, 'a', 20000);
    meet();
    free(block);
    return argument;
}

static void start(size_t number, void *(*run)(void *), int joined)
{
    static pthread_t threads[1024];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    if (joined)
        expect((unsigned)number);
    for (size_t i = 0; i < number; i++) {
        if (pthread_create(&threads[i], &attributes, run, NULL))
            give_up("growing: cannot create a thread");
        if (!joined)
            pthread_setname_np(threads[i], "idler");
    }
    for (size_t i = 0; joined && i < number; i++)
        pthread_join(threads[i], NULL);
}

static int does(int kind)
{
    const char *at = strstr(what, tallies[kind].name);
    return at && strchr(",", at[strlen(tallies[kind].name)]);
}

static void grow_blocks(void)
{
    if (does(LIST))
        lengthen(LIST, A_STEP);
    if (does(LOST))
        lose();
    if (does(TABLE))
        enter_names();
    if (does(RISING)) {
        serve(RISING, random_below(MOST / 4));
        lengthen(LIST, A_STEP / 2);
    }
    if (does(FREE))
        waste();
}

static void stay(void)
{
    if (does(CACHE))
        fill(CACHE);
    if (does(LINEAR))
        fill(LINEAR);
    if (does(TRAFFIC))
        serve(TRAFFIC, random_below(MOST));
    if (does(TIDE))
        serve(TIDE, not_far());
    if (does(JUMP) && step == 2) {
        jumped = malloc(4 * MIB);
        memset(jumped, 'j', 4 * MIB);
        count(JUMP, 1, 4 * MIB);
    }
}

static void run_threads(void)
{
    if (does(THREADS)) {
        start(4, idle, 0);
        count(THREADS, 4, 0);
    }
    if (does(ARENAS)) {
        start(4 * (step + 1), use_arena, 1);
        count(ARENAS, 4, 0);
    }
    if (does(CREW)) {
        start(12, use_arena, 1);
        count(CREW, 12, 0);
    }
}

__attribute__((noinline)) void stepped(void) { __asm__ volatile("" ::: "memory"); }

static void make_step(void)
{
    grow_blocks();
    stay();
    run_threads();
    step++;
    stepped();
}

static void say(void)
{
    json_open(NULL, '{');
    json_number("step", step);
    for (int kind = 0; kind < KINDS; kind++)
        if (tallies[kind].blocks) {
            json_open(tallies[kind].name, '[');
            json_number(NULL, tallies[kind].blocks);
            json_number(NULL, tallies[kind].bytes);
            json_close(']');
        }
    json_close('}');
    out_char('\n');
    out_flush();
    out_comma = 0;
}

int main(int argc, char **argv)
{
    parse_options(argc, argv, "growing");
    out_file = 1;
    what = text_option("what", "list");
    state = number_option("seed", 1) * 2654435769u;
    mallopt(M_ARENA_MAX, 512);
    for (size_t steps = number_option("steps", 0); step < steps;)
        make_step();
    say();
    for (char line; read(0, &line, 1) == 1;)
        if (line == '\n') {
            make_step();
            say();
        }
    hold();
}
