/* A process that knows when it stood still. pauses MEGABYTES: writes to that many, says "ready", and then a line for
   each time in which it did not run for a millisecond: seconds, and when that ended by CLOCK_MONOTONIC. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

int main(int count, char **argument)
{
    size_t size = (size_t)atol(argument[count - 1]) << 20;
    char *area = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return 1;
    memset(area, 'x', size);
    puts("ready");
    fflush(stdout);
    for (double before = now(), at;; before = at) {
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
        if ((at = now()) - before > 0.001) {
            printf("%.6f %.6f\n", at - before, at);
            fflush(stdout);
        }
    }
}
