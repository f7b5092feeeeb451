/* One program with several causes of trouble, for signatures: docs/signatures.md has what must be one and what two.
 *
 *     causes CAUSE WORK     WORK: blocks allocated and freed before, so that heaps differ in size
 *
 * Crashes end it; otherwise it prints a line once all is as it should be, and waits to be dumped.
 */
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

struct handler { const char *name; int calls; };
struct request { struct request *next; struct handler *handler; long number; char body[800]; };
struct session { struct session *next; char *name; struct handler *handler; char buffer[600]; };
struct header { char *name; size_t size; };

/* Members as in Unbound's util/storage/lruhash.h. */
struct lruhash_entry {
    pthread_rwlock_t lock;
    struct lruhash_entry *overflow_next, *lru_next, *lru_prev;
    uint32_t hash;
    void *key, *data;
};
struct lruhash_bin { pthread_spinlock_t lock; struct lruhash_entry *overflow_list; };
struct lruhash {
    pthread_spinlock_t lock;
    size_t (*sizefunc)(void *, void *);
    int (*compfunc)(void *, void *);
    void (*delkeyfunc)(void *, void *);
    void (*deldatafunc)(void *, void *);
    void (*markdelfunc)(void *);
    void *cb_arg;
    size_t size;
    int size_mask;
    struct lruhash_bin *array;
    struct lruhash_entry *lru_start, *lru_end;
    size_t num, space_used, space_max;
};

struct request *requests;
struct session *sessions;
struct lruhash *names;
struct handler handlers[2] = {{"get", 0}, {"put", 0}};
char *volatile last;
static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static volatile int state = 3;

static NOINLINE void wait_to_be_dumped(void)
{
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

/* ---- leaks ---- */

static NOINLINE void accept_request(long number, int keep)
{
    struct request *one = calloc(1, sizeof *one);
    one->handler = &handlers[0];
    one->number = number;
    memset(one->body, 'r', 100);
    one->next = requests;
    if (keep)
        requests = one;
}

static NOINLINE void open_session(int keep)
{
    struct session *one = calloc(1, sizeof *one);
    one->name = strdup("somebody");
    one->handler = &handlers[1];
    one->next = sessions;
    if (keep)
        sessions = one;
}

static void leak(int of_requests, int of_sessions)
{
    for (long i = 0; i < 16000; i++)
        accept_request(i, !of_requests || i % 2);
    for (long i = 0; i < 18000; i++)
        open_session(!of_sessions || i % 2);
    wait_to_be_dumped();
}

/* ---- crashes ---- */

static NOINLINE size_t parse_header(struct header *header) { return header->size + 1; }

static NOINLINE size_t find_route(struct header *header) { return header->size * 3; }

static NOINLINE void handle_request(int cause)
{
    struct header *header = NULL;
    size_t found = cause ? find_route(header) : parse_header(header);
    printf("%zu\n", found);
}

static NOINLINE void close_session(char *name)
{
    free(name);
    printf("closed\n");
}

static NOINLINE void check_state(void)
{
    assert(state == 4);
    printf("checked\n");
}

/* ---- locks ---- */

static NOINLINE void *transfer(void *nothing)
{
    pthread_mutex_lock(&accounts);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&journal);
    return nothing;
}

static NOINLINE void *audit(void *nothing)
{
    pthread_mutex_lock(&journal);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&accounts);
    return nothing;
}

static NOINLINE void *reload(void *nothing)
{
    pthread_mutex_lock(&journal);
    pthread_mutex_lock(&journal);
    return nothing;
}

static void start(void *(*work)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL))
        abort();
}

static void wait_until_they_wait(void)
{
    while (__atomic_load_n(&journal.__data.__lock, __ATOMIC_RELAXED) != 2)
        usleep(1000);
    usleep(50000);
    wait_to_be_dumped();
}

/* ---- a table, and a header that is written over ---- */

static void fill(void)
{
    names = calloc(1, sizeof *names);
    names->size = 1024;
    names->size_mask = 1023;
    names->array = calloc(names->size, sizeof *names->array);
    for (int i = 0; i < 4000; i++) {
        struct lruhash_entry *one = calloc(1, sizeof *one);
        one->key = one;
        one->hash = i % 4 ? 0x1003 : (uint32_t)i * 2654435761u;
        struct lruhash_bin *bin = &names->array[one->hash & 1023];
        one->overflow_next = bin->overflow_list;
        bin->overflow_list = one;
        one->lru_next = names->lru_start;
        if (names->lru_start)
            names->lru_start->lru_prev = one;
        else
            names->lru_end = one;
        names->lru_start = one;
        names->num++;
    }
    wait_to_be_dumped();
}

static void overrun(void)
{
    char *blocks[12];
    for (int i = 0; i < 12; i++)
        memset(blocks[i] = malloc(136), 'b', 136);
    last = blocks[5] + 136;
    memset(last, 'A', 8);
    wait_to_be_dumped();
}

static void work_before(long work)
{
    void **blocks = calloc(work + 1, sizeof *blocks);
    for (long i = 0; i < work; i++)
        blocks[i] = malloc(64 + i % 512);
    for (long i = 0; i < work; i++)
        free(blocks[i]);
    free(blocks);
}

int main(int argc, char **argv)
{
    const char *cause = argc > 1 ? argv[1] : "";
    work_before(argc > 2 ? atol(argv[2]) : 0);
    pthread_barrier_init(&both, NULL, 2);
    if (!strcmp(cause, "requests")) leak(1, 0);
    if (!strcmp(cause, "sessions")) leak(0, 1);
    if (!strcmp(cause, "header")) handle_request(0);
    if (!strcmp(cause, "route")) handle_request(1);
    if (!strcmp(cause, "promise")) check_state();
    if (!strcmp(cause, "table")) fill();
    if (!strcmp(cause, "overrun")) overrun();
    if (!strcmp(cause, "twice")) {
        last = strdup("somebody");
        close_session(last);
        close_session(last);
    }
    if (!strcmp(cause, "orders")) {
        start(transfer);
        start(audit);
        wait_until_they_wait();
    }
    if (!strcmp(cause, "again")) {
        start(reload);
        wait_until_they_wait();
    }
    return 2;
}
