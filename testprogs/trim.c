/* A fragmented heap, and what malloc_trim(0) really returns of it: a forked child trims and measures, so the
 * parent's heap stays as it was. All memory has been written to. The healthy twin frees hardly anything.
 */
#include "truth.h"

#include <sys/wait.h>

#define WORKERS 3
#define BLOCKS 600
#define MAX_PAGES (1u << 16)

struct measured {
    size_t released, of_top, top_resident;
};

static void *kept[WORKERS + 1][BLOCKS];
static struct measured measured;
static char smaps[4 * MIB];
static unsigned char resident[MAX_PAGES];

static void fragment(int owner)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = i % 7 == 0 ? 30000 : i % 3 == 0 ? 9000 : i % 2 ? 600 : 40;
        kept[owner][i] = malloc(size + 16 * (size_t)owner);
        memset(kept[owner][i], 0x5a, malloc_usable_size(kept[owner][i]));
    }
    for (int i = 0; i < BLOCKS; i++)
        if (healthy ? i % 100 == 1 : i % 5 != 1)
            free(kept[owner][i]);
}

static void *work(void *argument)
{
    fragment((int)(uintptr_t)argument);
    meet();
    hold();
    return NULL;
}

/* Resident bytes of anonymous memory and of [heap], the stack left out. */
static size_t anonymous_rss(void)
{
    size_t length = 0, total = 0, kib;
    int wanted = 0, file = open("/proc/self/smaps", O_RDONLY);
    for (ssize_t got; (got = read(file, smaps + length, sizeof smaps - 1 - length)) > 0;)
        length += (size_t)got;
    close(file);
    smaps[length] = 0;
    for (char *at = smaps, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        unsigned long start, inode;
        char name[256] = "";
        if (sscanf(at, "%lx-%*x %*4s %*x %*x:%*x %lu %255s", &start, &inode, name) >= 2)
            wanted = inode == 0 && (!name[0] || strcmp(name, "[heap]") == 0 || strncmp(name, "[anon", 5) == 0);
        else if (wanted && sscanf(at, "Rss: %zu kB", &kib) == 1)
            total += kib * KIB;
    }
    return total;
}

static void trim_and_measure(int report)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    memset(smaps, 1, sizeof smaps);
    memset(resident, 1, sizeof resident);
    char *end = sbrk(0), *low = end - MAX_PAGES / 16 * page;
    char *start = (char *)((uintptr_t)chunk_of(kept[0][1]) & ~(page - 1));
    low = start > low ? start : low;
    mincore(low, (size_t)(end - low), resident);
    size_t before = anonymous_rss();
    malloc_trim(0);
    struct measured result = {before - anonymous_rss(), (size_t)(end - (char *)sbrk(0)), 0};
    for (char *at = end - result.of_top; at < end; at += page)
        result.top_resident += resident[(size_t)(at - low) / page] & 1 ? page : 0;
    if (write(report, &result, sizeof result) != sizeof result)
        _exit(1);
    _exit(0);
}

static void details(void)
{
    json_number("released", measured.released);
    json_number("of_top", measured.of_top);
    json_number("top_resident", measured.top_resident);
}

int main(int argc, char **argv)
{
    int ends[2], status;
    truth_begin(argc, argv, "trim", 1);
    expect(WORKERS + 1);
    for (int i = 0; i < WORKERS; i++)
        spawn(numbered("trimmed-", i), work, (void *)(uintptr_t)(i + 1));
    fragment(0);
    meet();
    take_malloc_info();
    if (pipe(ends))
        return 1;
    pid_t child = fork();
    if (child == 0)
        trim_and_measure(ends[1]);
    if (read(ends[0], &measured, sizeof measured) != sizeof measured)
        return 1;
    waitpid(child, &status, 0);
    truth_end(details);
}
