/* A process to record. grown FILE: counts in FILE, which it maps, says "ready", and does what its standard input says:
   g takes 1 MiB more in 16 blocks and writes to it, f frees what it took last, x ends. At the end of input it goes on.

   FILE has ticks, one a millisecond or more; blocks; and by its own clock the nanoseconds by which those ticks were late
   that were so by more than 5 ms, without what it waited for a processor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 16, SIZE = 65536 - 16 };

static struct counts { volatile long ticks, blocks, late; } *counts;
static void *taken[MOST];

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Nanoseconds that this thread was ready to run and did not: proc(5), schedstat. */
static long waited(void)
{
    static int file = -1;
    char text[128] = "";
    long value = 0;
    if (file < 0)
        file = open("/proc/thread-self/schedstat", O_RDONLY);
    if (pread(file, text, sizeof text - 1, 0) > 0)
        sscanf(text, "%*d %ld", &value);
    return value;
}

static void act(char word)
{
    for (int at = 0; at < 16; at++)
        if (word == 'g' && counts->blocks < MOST) {
            taken[counts->blocks] = malloc(SIZE);
            memset(taken[counts->blocks++], 7, SIZE);
        } else if (word == 'f' && counts->blocks) {
            free(taken[--counts->blocks]);
        } else if (word == 'x') {
            exit(0);
        }
}

int main(int count, char **argument)
{
    int file = count > 1 ? open(argument[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, 4096))
        return 1;
    counts = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct pollfd input = {0, POLLIN, 0};
    puts("ready");
    fflush(stdout);
    for (long before = now() - waited();; counts->ticks++) {
        char word;
        if (poll(&input, 1, 1) > 0) {
            if (read(0, &word, 1) == 1)
                act(word);
            else
                input.fd = -1;
        }
        long after = now() - waited(), late = after - before - 1000000;
        before = after;
        if (late > 5000000)
            counts->late += late;
    }
}
