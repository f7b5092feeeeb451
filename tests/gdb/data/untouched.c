/* Maps much and touches one page of it, in which the only pointers to its blocks are.

   untouched [leak] shared|private|swapped|FILE...: each is mapped, of a FILE 1 GiB, shared; pointers are in the last of them.
   With leak they are overwritten.
   Says "ready" on standard output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 24 };
static const size_t G = 1ul << 30;

static void *map(const char *what)
{
    if (!strcmp(what, "shared"))
        return mmap(0, 2 * G, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(what, "swapped")) {
        char *area = mmap(0, G, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(area, 'x', 1 << 25);
        madvise(area, 1 << 25, 21); /* MADV_PAGEOUT */
        return area;
    }
    if (!strcmp(what, "private"))
        return mmap(0, 64 * G, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int file = open(what, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, G))
        return MAP_FAILED;
    return mmap(0, G, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

static __attribute__((noinline)) void fill(char **page)
{
    for (int at = 0; at < BLOCKS; at++)
        page[at] = memset(malloc(1000000), 'x', 1000000);
}

static __attribute__((noinline)) int clean(int depth)
{
    volatile char room[4096];
    memset((char *)room, 0, sizeof room);
    return depth ? clean(depth - 1) + room[7] : room[9];
}

int main(int count, char **argument)
{
    int first = count > 1 && !strcmp(argument[1], "leak") ? 2 : 1;
    char **page = NULL;
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    for (int at = first; at < count; at++) {
        char *area = map(argument[at]);
        if (area == MAP_FAILED)
            return 3;
        page = (char **)(area + (G >> 1));
        *page = NULL;
    }
    if (!page)
        return 2;
    fill(page);
    if (first > 1)
        memset(page, 0, BLOCKS * sizeof *page);
    int status = clean(8);
    puts("ready");
    fflush(stdout);
    pause();
    return status;
}
