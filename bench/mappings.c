/* N blocks of 132 KiB with a mapping of their own each, and a page without access behind each: 2 N mappings. Then a core.
   Arguments: N (30 000); a second: no core, it waits. */
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 30000;
    char **block = calloc(count, sizeof *block);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(132 << 10);
        block[i][0] = 1;
        mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (argc > 2)
        pause();
    abort();
}
