/* A process that changes while it is examined. fickle FILE WHAT: counts ticks in FILE, which it maps, and says "ready".

   calm   nothing else
   fork   children that end at once, one after the other
   exec   itself, again and again, from a thread that is not the first
   ends   its threads end one by one, the first one among them, until none is left
   churn  threads that end at once
   unmap  memory that comes and goes, as do blocks of the heap */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 12
#define ALIVE 700 /* milliseconds: until the threads of "ends" do so */

static volatile long *ticks;
static char **words;

static void rest(long microseconds)
{
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

static void *nothing(void *none) { return none; }

static void fork_one(void)
{
    pid_t made = fork();
    if (!made)
        _exit(0);
    if (made > 0)
        waitpid(made, NULL, 0);
}

static void exec_self(void)
{
    rest(20000);
    execv("/proc/self/exe", words);
}

static void churn(void)
{
    pthread_t made[4];
    for (int at = 0; at < 4; at++)
        pthread_create(&made[at], NULL, nothing, NULL);
    for (int at = 0; at < 4; at++)
        pthread_join(made[at], NULL);
}

static void unmap(void)
{
    char *made[8];
    for (int at = 0; at < 8; at++) {
        made[at] = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(made[at], 1, 1 << 16);
    }
    void *block = malloc(1 << 18);
    memset(block, 1, 1 << 12);
    for (int at = 0; at < 8; at++)
        munmap(made[at], 1 << 20);
    free(block);
}

static void *work(void *what)
{
    for (;;) {
        ((void (*)(void))what)();
        rest(200);
    }
}

static void *end(void *number)
{
    rest((ALIVE + 5 * (long)number) * 1000);
    return NULL;
}

static void *count(void *none)
{
    for (;;) {
        rest(1000);
        ++*ticks;
    }
    return none;
}

int main(int many, char **argument)
{
    static const struct { const char *name; void (*what)(void); } all[] = {
        {"fork", fork_one}, {"exec", exec_self}, {"churn", churn}, {"unmap", unmap},
    };
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    words = argument;
    int file = open(argument[1], O_RDWR | O_CREAT, 0600);
    if (many < 3 || file < 0 || ftruncate(file, 4096))
        return 1;
    ticks = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    pthread_t made;
    int ends = !strcmp(argument[2], "ends");
    for (long at = 0; at < THREADS && ends; at++)
        pthread_create(&made, NULL, end, (void *)at);
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++)
        if (!strcmp(argument[2], all[at].name))
            pthread_create(&made, NULL, work, (void *)all[at].what);
    if (write(1, "ready\n", 6) < 0) /* stdout may be closed by the second time */
        return 1;
    if (ends) {
        rest((ALIVE + 20) * 1000);
        pthread_exit(NULL);
    }
    count(NULL);
}
