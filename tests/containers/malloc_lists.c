/* The lists of glibc's own malloc: blocks that were freed into the thread's cache, and on into fastbins. */
#include <fcntl.h>

#include "truth.h"

#define CACHED 7 /* entries of a cache's bin, where nobody tuned it */

static const size_t sizes[] = {24, 40, 100, 600};
static const int freed[] = {12, 3, 0, 7}; /* fastbins take what a full bin of the cache does not */
static char *blocks[4][16];
static char buffer[1 << 16];

/* The cache is the first thing that malloc puts on the heap. Nothing here may use malloc. */
static unsigned long find_cache(void) {
    static char maps[1 << 16];
    size_t length = 0;
    ssize_t got;
    int file = open("/proc/self/maps", O_RDONLY);
    while ((got = read(file, maps + length, sizeof maps - 1 - length)) > 0)
        length += got;
    close(file);
    char *line = strstr(maps, "[heap]");
    while (line > maps && line[-1] != '\n')
        line--;
    return strtoul(line, NULL, 16) + 16;
}

static void say_cache(unsigned long cache, const char *how, const char *options) {
    char expression[96];
    snprintf(expression, sizeof expression, "%s%#lx", how, cache);
    truth_case(*how ? "cache" : "cache_untyped", "glibc-tcache", expression, options, 64, -1);
    for (int at = 0; at < 4; at++)
        for (int left = freed[at] > CACHED ? CACHED : freed[at]; left--;)
            truth_node((sizes[at] + 8 + 15) / 16 - 2, blocks[at][left]);
}

int main(void) {
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    blocks[0][0] = malloc(1);
    unsigned long cache = find_cache();
    for (int at = 0; at < 4; at++)
        for (int each = 0; each < 16; each++)
            blocks[at][each] = malloc(sizes[at]);
    for (int at = 0; at < 4; at++)
        for (int each = 0; each < freed[at]; each++)
            free(blocks[at][each]);
    say_cache(cache, "*(struct tcache_perthread_struct *)", "");
    say_cache(cache, "", "--shape glibc-tcache");
    truth_case("fastbins", "glibc-fastbins", "main_arena", "", 10, -1);
    for (int each = freed[0]; each-- > CACHED;)
        truth_node(0, blocks[0][each] - 16);
    truth_park();
}
