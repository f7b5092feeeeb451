/* A process that counts what happens to it. busy FILE [nested]: counts in FILE, which it maps, and says "ready".

   Its first thread alone takes signals: queued SIGRTMINs and a timer of one a millisecond. Others make system calls
   over and over, each its own, and count those that fail; one forks children, one makes threads that end at once, one
   waits in calls that signal(7) lets fail with EINTR at a stop. With nested it is the first process of a PID namespace.
   At SIGTERM all stop, and "done" is said. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPS, READS, POLLS, LOCKS, SEMAPHORES, WRITES, FORKS, THREADS, LISTED, KINDS };
static struct counts {
    volatile long signals, ticks, first, last, largest, calls[KINDS], failed[KINDS];
} *counts;
static volatile int ending;
static timer_t timer;

static long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000 + at.tv_nsec;
}

static void on_signal(int number) { (void)number; counts->signals++; }
static void on_end(int number) { (void)number; ending = 1; }

static void on_tick(int number)
{
    (void)number;
    counts->ticks += 1 + timer_getoverrun(timer);
    counts->last = now();
}

static void count(int kind, int failed)
{
    __atomic_add_fetch(&counts->calls[kind], 1, __ATOMIC_RELAXED);
    if (failed)
        __atomic_add_fetch(&counts->failed[kind], 1, __ATOMIC_RELAXED);
}

static void *sleeps(void *none)
{
    while (!ending) {
        struct timespec pause = {0, 300000};
        count(SLEEPS, nanosleep(&pause, NULL) != 0);
    }
    return none;
}

static int ends[2];

static void *reads(void *none)
{
    char byte;
    while (!ending)
        count(READS, read(ends[0], &byte, 1) != 1);
    return none;
}

static void *writes(void *none)
{
    while (!ending) {
        count(WRITES, write(ends[1], "x", 1) != 1);
        usleep(200);
    }
    return none;
}

static void *polls(void *none)
{
    struct pollfd nothing = {-1, POLLIN, 0};
    while (!ending)
        count(POLLS, poll(&nothing, 1, 2) != 0);
    return none;
}

static void *locks(void *none)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    while (!ending) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000;
        if (until.tv_nsec >= 1000000000)
            until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_mutex_lock(&lock);
        count(LOCKS, pthread_cond_timedwait(&never, &lock, &until) != ETIMEDOUT);
        pthread_mutex_unlock(&lock);
    }
    return none;
}

static void *semaphores(void *none)
{
    static sem_t shared;
    sem_init(&shared, 0, 0);
    while (!ending) {
        sem_post(&shared);
        count(SEMAPHORES, sem_wait(&shared) != 0);
        usleep(100);
    }
    return none;
}

static void *forks(void *none)
{
    while (!ending) {
        int status = -1;
        pid_t child = fork();
        if (!child)
            _exit(7);
        count(FORKS, child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7);
        usleep(2000);
    }
    return none;
}

static void *nothing(void *none) { return none; }

static void *threads(void *none)
{
    while (!ending) {
        pthread_t made;
        int failed = pthread_create(&made, NULL, nothing, NULL);
        count(THREADS, failed || pthread_join(made, NULL));
    }
    return none;
}

static void *listed(void *none)
{
    struct epoll_event event;
    int queue = epoll_create1(0);
    while (!ending)
        count(LISTED, epoll_wait(queue, &event, 1, 2) != 0);
    return none;
}

static void *clocks(void *none)
{
    for (long before = now(), at; !ending; before = at) {
        at = now();
        if (at - before > counts->largest)
            counts->largest = at - before;
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
    return none;
}

int main(int given, char **argument)
{
    if (given > 2) {
        pid_t child;
        int status;
        if (unshare(CLONE_NEWPID))
            return 4;
        if ((child = fork()))
            return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 5;
    }
    void *(*works[])(void *) = {sleeps, reads, writes, polls, locks, semaphores, forks, threads, listed, clocks};
    int file = open(argument[1], O_RDWR | O_CREAT, 0600), many = sizeof works / sizeof *works;
    if (file < 0 || ftruncate(file, 4096) || pipe(ends))
        return 1;
    counts = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_t made[16];
    for (int at = 0; at < many; at++)
        pthread_create(&made[at], NULL, works[at], NULL);
    struct sigaction act = {.sa_flags = SA_RESTART};
    sigfillset(&act.sa_mask);
    act.sa_handler = on_signal, sigaction(SIGRTMIN, &act, NULL);
    act.sa_handler = on_tick, sigaction(SIGRTMIN + 1, &act, NULL);
    act.sa_handler = on_end, sigaction(SIGTERM, &act, NULL);
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    if (timer_create(CLOCK_MONOTONIC, &how, &timer))
        return 2;
    counts->first = now();
    timer_settime(timer, 0, &each, NULL);
    puts("ready");
    fflush(stdout);
    sigset_t none;
    sigemptyset(&none);
    while (!ending)
        sigsuspend(&none);
    for (int at = 0; at < many; at++)
        if (at != 1) /* who reads may wait for ever */
            pthread_join(made[at], NULL);
    puts("done");
    fflush(stdout);
    return 0;
}
