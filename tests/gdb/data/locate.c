/* What expressions of a user may name: see test_locate.py. unistd.h, which declares daemon and environ,
   is left out on purpose. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "locate.h"

struct goal goals[3] = {{1, 0}, {2, 0}, {3, 0}};
struct goal *daemon = &goals[0];  /* libc has a function of that name */
static int environ = 77;         /* and a variable of this */
static int twice = 11;            /* and there is another one in locate_other.c */
__thread int per_thread = 5;
static struct holder holder = {.inside = {40, 0}};
__int128 broad = -1;
unsigned __int128 broader = -1;
struct goal *nowhere, *wild = (struct goal *) 0x10;
struct far_away far_away;
struct bits bits = {0x5, 0x1234, 0x9876543210, 'd', -3};
struct packed packed = {'p', -70000, 0x3f};
struct flexible *flexible;
int matrix[3][4];
double fraction = 1.5;
typedef struct { int only; } nameless;
nameless without_tag;

static pthread_barrier_t barrier;

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct goal only_there = {100 + worker->number, 0};
    struct goal *link = &only_there; /* libc has a function of that name */
    worker->local = link;
    pthread_barrier_wait(&barrier);
    fast(worker);
    return (void *) (size_t) only_there.size;
}

void ready(void)
{
    __asm__ volatile("");
}

static struct worker *start(int number)
{
    pthread_t thread;
    struct worker *worker = calloc(1, sizeof *worker);
    worker->number = number;
    worker->env.pointed = calloc(1, sizeof(struct goal));
    worker->env.pointed->size = number;
    pthread_create(&thread, NULL, work, worker);
    return worker;
}

int main(void)
{
    pthread_barrier_init(&barrier, NULL, 3);
    flexible = calloc(1, 64);
    far_away.a.b.goal = calloc(1, sizeof(struct goal));
    far_away.a.b.c.goal = calloc(1, sizeof(struct goal));
    struct worker *first = start(1), *second = start(2);
    pthread_barrier_wait(&barrier);
    while (!parked(2)) {
    }
    printf("{\"goals\": %zu, \"daemon\": %zu, \"environ\": %zu, \"twice\": %zu, \"other_twice\": %zu, ",
           (size_t) goals, (size_t) &daemon, (size_t) &environ, (size_t) &twice, (size_t) other_twice());
    printf("\"locals\": [%zu, %zu], \"workers\": [%zu, %zu], \"holder\": %zu, \"opaque\": %zu, ",
           (size_t) first->local, (size_t) second->local, (size_t) first, (size_t) second, (size_t) &holder,
           (size_t) opaque);
    printf("\"env\": %zu, \"goal\": %zu, \"pointed\": %zu, \"near\": %zu, \"far\": %zu, ",
           offsetof(struct worker, env), offsetof(struct worker, env.goal), (size_t) first->env.pointed,
           (size_t) far_away.a.b.goal, (size_t) far_away.a.b.c.goal);
    printf("\"bits\": %zu, \"packed\": %zu, \"sum\": %d}\n", (size_t) &bits, (size_t) &packed,
           environ + twice + per_thread + holder.inside.size + matrix[0][0] + without_tag.only);
    fflush(stdout);
    ready();
    return 0;
}
