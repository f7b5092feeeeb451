/* A process to hold. held FILE [SLEEPERS [churn]]: counts in FILE, which it maps, and says "ready".

   Its first thread counts ticks, one a millisecond, and queued SIGRTMINs; SLEEPERS threads wait for ever; with churn
   another one makes threads that end at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct counts { volatile long ticks, signals; } *counts;

static void on_signal(int number)
{
    (void)number;
    __atomic_add_fetch(&counts->signals, 1, __ATOMIC_SEQ_CST);
}

static void *sleeper(void *none)
{
    for (;;)
        pause();
    return none;
}

static void *nothing(void *none) { return none; }

static void *churn(void *none)
{
    for (;;) {
        pthread_t made[4];
        for (int at = 0; at < 4; at++)
            pthread_create(&made[at], NULL, nothing, NULL);
        for (int at = 0; at < 4; at++)
            pthread_join(made[at], NULL);
    }
    return none;
}

int main(int count, char **argument)
{
    int file = open(argument[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096))
        return 1;
    counts = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    signal(SIGRTMIN, on_signal);
    pthread_t made;
    for (int at = 0; count > 2 && at < atoi(argument[2]); at++)
        pthread_create(&made, NULL, sleeper, NULL);
    if (count > 3)
        pthread_create(&made, NULL, churn, NULL);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        counts->ticks++;
    }
}
