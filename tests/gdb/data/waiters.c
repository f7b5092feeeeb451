/* Threads that come to wait for locks one by one; after each, tick() is called with what $gx_waiters must say. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static pthread_spinlock_t spin;
static volatile int tids[10];
volatile int ticks;

static void *want(void *number)
{
    int index = (int)(long)number;
    tids[index] = (int)syscall(SYS_gettid);
    switch (index % 5) {
    case 0: pthread_mutex_lock(&mutex); break;
    case 1: pthread_rwlock_rdlock(&rwlock); break;
    case 2: pthread_mutex_lock(&guard), pthread_cond_wait(&condition, &guard); break;
    case 3: sem_wait(&semaphore); break;
    default: pthread_spin_lock(&spin);
    }
    return NULL;
}

/* Whether the thread is in a system call at all: none of these makes another. */
static int waits(int id)
{
    char path[64], text[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", id);
    int file = open(path, O_RDONLY);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    return got > 0 && atoi(text) == SYS_futex;
}

/* Whether all of them do. Each is asked at each tick: a debugger's stop interrupts the calls, and they restart late. */
static int all_wait(int threads, int spinning)
{
    for (int i = 0; i < threads; i++)
        if (!tids[i] || (i % 5 == 4 ? -spin < spinning : !waits(tids[i])))
            return 0;
    return 1;
}

__attribute__((noinline)) void tick(int mutexes, int rwlocks, int conditions, int semaphores, int spins)
{
    ticks += mutexes + rwlocks + conditions + semaphores + spins > 0;
}

int main(void)
{
    int counts[5] = {0};
    pthread_mutex_lock(&mutex);
    pthread_rwlock_wrlock(&rwlock);
    sem_init(&semaphore, 0, 0);
    pthread_spin_init(&spin, 0);
    pthread_spin_lock(&spin);
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, want, (void *)(long)i);
        counts[i % 5]++;
        while (!all_wait(i + 1, counts[4]))
            usleep(1000);
        tick(counts[0], counts[1], counts[2], counts[3], counts[4]);
    }
    printf("{\"visits\": %d}\n", ticks);
    fflush(stdout);
    _exit(0);
}
