/* Condition variables, semaphores, barriers after hundreds of rounds, and then quiet: counters have moved, groups have
 * changed sides, waits have timed out.
 *
 * Each line of the output: what is waited at, its address, how many threads wait. Then READY.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 300

static struct {
    long before;
    pthread_cond_t condition;
    pthread_mutex_t guard;
} shared = {0, PTHREAD_COND_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static sem_t semaphore;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *await_signal(void *argument)
{
    pthread_mutex_lock(&shared.guard);
    for (;;)
        pthread_cond_wait(&shared.condition, &shared.guard);
    return argument;
}

static void *consume(void *argument)
{
    for (;;)
        sem_wait(&semaphore);
    return argument;
}

static void *meet(void *argument)
{
    for (;;)
        pthread_barrier_wait(&barrier);
    return argument;
}

static void *lock(void *argument)
{
    pthread_mutex_lock(&mutex);
    return argument;
}

static void *write_lock(void *argument)
{
    pthread_rwlock_wrlock(&rwlock);
    return argument;
}

static void start(void *(*run)(void *), int number)
{
    pthread_t thread;
    while (number--)
        if (pthread_create(&thread, NULL, run, NULL))
            _exit(3);
}

/* A waiter that gives up makes the group that takes in new ones smaller. */
static void give_up(int times)
{
    while (times--) {
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        pthread_mutex_lock(&shared.guard);
        pthread_cond_timedwait(&shared.condition, &shared.guard, &at);
        pthread_mutex_unlock(&shared.guard);
    }
}

int main(void)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, NULL, 3);
    start(await_signal, 3);
    start(consume, 2);
    start(meet, 2);
    usleep(20000);
    give_up(5);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&shared.guard);
        pthread_cond_signal(&shared.condition);
        if (i % 7 == 0)
            pthread_cond_broadcast(&shared.condition);
        pthread_mutex_unlock(&shared.guard);
        usleep(100);
        sem_post(&semaphore);
        pthread_barrier_wait(&barrier);
    }
    give_up(5);
    pthread_mutex_lock(&mutex);
    pthread_rwlock_rdlock(&rwlock);
    start(lock, 1);
    start(write_lock, 1);
    usleep(100000);
    printf("condition %p 3\nsemaphore %p 2\nbarrier %p 2\nmutex %p 1\nrwlock-write %p 1\nREADY\n",
           (void *)&shared.condition, (void *)&semaphore, (void *)&barrier, (void *)&mutex, (void *)&rwlock);
    fflush(stdout);
    for (;;)
        pause();
}
