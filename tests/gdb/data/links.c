/* Cached blocks at places where a mangled link is as aligned as a plain one, and may be as readable.
 *
 * KEY is the type of `key`: a pointer as in glibc 2.29 to 2.33, a number as since 2.34; without it there is no key.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct tcache_entry {
    struct tcache_entry *next;
#ifdef KEY
    KEY key;
#endif
} tcache_entry;

#define AREA ((char *)0x7000000000)
#define MAPPED (1 << 20)
#define MANGLED(at, to) ((tcache_entry *)((uintptr_t)(to) ^ (uintptr_t)(at) >> 12))

tcache_entry *plain, *mangled, *first;

static tcache_entry *entry(size_t offset, size_t size)
{
    uintptr_t *header = (uintptr_t *)(AREA + offset);
    header[-1] = size | 1;
    return (tcache_entry *)header;
}

void built(void) {}

int main(void)
{
    if (mmap(AREA, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)AREA)
        abort();
    /* Revealed, these links are places in another mapping. */
    if (mmap((void *)0x7007000000, MAPPED, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
        abort();
    plain = entry(0x100, 0x40);
    mangled = entry(0x200, 0x40);
    tcache_entry *to = entry(0x300, 0x40);
    plain->next = to;
    mangled->next = MANGLED(mangled, to);
    first = (tcache_entry *)AREA; /* no word before it */
    first->next = MANGLED(first, to);
    built();
    return 0;
}
