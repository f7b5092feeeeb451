/* Condition variables that were signalled 0, 1, 2, ... times before two threads wait at each for ever; what stands
 * behind them looks like the rest of many other things: zeros, or small numbers. Prints a line for each waiter, its
 * id and the condition's address, then READY, and stops.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TIMES 40
#define WAITERS 2

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    unsigned behind[16];
    int items, waiting, tids[WAITERS];
};

static struct queue queues[2 * TIMES];

static void *takes(void *argument)
{
    struct queue *queue = argument;
    pthread_mutex_lock(&queue->mutex);
    queue->waiting++;
    while (!queue->items)
        pthread_cond_wait(&queue->filled, &queue->mutex);
    queue->items--;
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void *stays(void *argument)
{
    struct queue *queue = argument;
    pthread_mutex_lock(&queue->mutex);
    queue->tids[queue->waiting++] = (int)syscall(SYS_gettid);
    while (queue)
        pthread_cond_wait(&queue->filled, &queue->mutex);
    return NULL;
}

static void start(pthread_t *thread, void *(*function)(void *), struct queue *queue, int already)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_create(thread, &attributes, function, queue);
    for (int ready = 0; !ready; usleep(50)) {
        pthread_mutex_lock(&queue->mutex); /* whoever counts itself has the mutex until it waits */
        ready = queue->waiting > already;
        pthread_mutex_unlock(&queue->mutex);
    }
}

static int in_futex(int tid)
{
    char path[64];
    int number = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 1; /* a kernel that does not say */
    if (fscanf(file, "%d", &number) != 1)
        number = -1; /* running */
    fclose(file);
    return number == SYS_futex;
}

int main(void)
{
    pthread_t thread;
    for (int at = 0; at < 2 * TIMES; at++) {
        struct queue *queue = &queues[at];
        pthread_mutex_init(&queue->mutex, NULL);
        pthread_cond_init(&queue->filled, NULL);
        queue->behind[2] = at < TIMES ? 0 : 7;
        for (int times = 0; times < at % TIMES; times++) {
            start(&thread, takes, queue, times);
            pthread_mutex_lock(&queue->mutex);
            queue->items = 1;
            pthread_cond_signal(&queue->filled);
            pthread_mutex_unlock(&queue->mutex);
            pthread_join(thread, NULL);
        }
        queue->waiting = 0;
        for (int waiter = 0; waiter < WAITERS; waiter++)
            start(&thread, stays, queue, waiter);
    }
    for (int at = 0; at < 2 * TIMES; at++)
        for (int waiter = 0; waiter < WAITERS; waiter++)
            while (!in_futex(queues[at].tids[waiter]))
                usleep(1000);
    for (int at = 0; at < 2 * TIMES; at++)
        for (int waiter = 0; waiter < WAITERS; waiter++)
            printf("WAITS %d %p\n", queues[at].tids[waiter], (void *)&queues[at].filled);
    printf("READY\n");
    fflush(stdout);
    raise(SIGSTOP);
    return 0;
}
