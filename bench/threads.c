/* N threads that wait, each in a mutex, a condition or poll; each has malloced, and most of it is freed. Then a core.
   Arguments: N (5 000), the most arenas (16), KiB that each thread mallocs (4); a fourth: "live", no core, it waits;
   "ended", the threads have ended when the core is written, and only what they left is in it. */
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 1000
#define KEEP_EVERY 64
#define STACK (64 << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t met;
static size_t blocks;
static int ends;

static void wait_for_ever(size_t number)
{
    if (number % 3 == 0)
        pthread_mutex_lock(&lock);
    else if (number % 3 == 1)
        for (pthread_mutex_lock(&guard);;)
            pthread_cond_wait(&never, &guard);
    poll(NULL, 0, -1);
}

static void *work(void *number)
{
    char **block = malloc(blocks * sizeof *block);
    for (size_t i = 0; i < blocks; i++)
        memset(block[i] = malloc(BLOCK), 0x61, BLOCK);
    for (size_t i = 0; i < blocks; i++)
        if (i % KEEP_EVERY)
            free(block[i]);
    pthread_barrier_wait(&met);
    if (!ends)
        wait_for_ever((size_t)number);
    return block;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 5000;
    mallopt(M_ARENA_MAX, argc > 2 ? atoi(argv[2]) : 16);
    ends = argc > 4 && !strcmp(argv[4], "ended");
    blocks = (argc > 3 ? strtoul(argv[3], NULL, 0) : 4) * 1024 / BLOCK;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    pthread_barrier_init(&met, NULL, (unsigned)count + 1);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, work, (void *)i))
            return 1;
    }
    pthread_barrier_wait(&met);
    sleep(2); /* until all of them wait, or have ended */
    if (argc > 4 && !ends)
        pause();
    abort();
}
