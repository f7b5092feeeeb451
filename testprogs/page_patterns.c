/* Patterns that a map of the heap must show: every second page freed, a run that went back to the system below a live
 * block, a free run that did not, and forty more arenas. The kernel says which pages of the first run are left. The
 * healthy twin frees nothing.
 */
#include "truth.h"

#define PAGES 256
#define PAGE ((size_t)4096)
#define RETURNED (64 * PAGE)
#define FREE (96 * PAGE)
#define ARENAS 40

static void *paged[PAGES], *pins[3], *arenas[ARENAS];
static void *kept[PAGES], *freed[PAGES];
static size_t keeps, frees, gone;
static char *returned, *unreturned;

static void *work(void *argument)
{
    int slot = (int)(uintptr_t)argument;
    void *block = malloc(8 * PAGE);
    memset(block, 0x61, 8 * PAGE);
    arenas[slot] = arena_of(block);
    meet();
    hold();
    return NULL;
}

/* Have the next block that is cut from the top begin at a page. */
static void align_top(void)
{
    char *behind = chunk_of(malloc(24)) + 32 + HEADER;
    size_t pad = (PAGE - (uintptr_t)behind % PAGE) % PAGE + PAGE;
    memset(malloc(pad - HEADER), 0x70, pad - HEADER);
}

static void plant(void)
{
    align_top();
    for (int i = 0; i < PAGES; i++)
        memset(paged[i] = malloc(PAGE - HEADER), 0x70, PAGE - HEADER);
    pins[0] = malloc(100);
    memset(returned = malloc(RETURNED), 0x72, RETURNED);
    pins[1] = malloc(100);
    memset(unreturned = malloc(FREE), 0x75, FREE);
    pins[2] = malloc(100);
    if (!healthy) {
        free(returned);
        malloc_trim(0);
        free(unreturned);
    }
    for (int i = 0; i < PAGES; i++) {
        if (i % 2 && !healthy)
            free(freed[frees++] = paged[i]);
        else
            kept[keeps++] = paged[i];
    }
}

/* Pages of a stretch that are not in RAM, as the kernel says. */
static size_t count_gone(char *start, size_t bytes)
{
    static unsigned char resident[RETURNED / PAGE + 1];
    char *first = (char *)((uintptr_t)start & ~(PAGE - 1));
    size_t pages = (size_t)(start + bytes - first) / PAGE, count = 0;
    mincore(first, pages * PAGE, resident);
    for (size_t i = 0; i < pages; i++)
        count += !(resident[i] & 1);
    return count;
}

static void details(void)
{
    json_addresses("kept", kept, keeps);
    json_addresses("freed", freed, frees);
    json_pair("returned", returned, RETURNED);
    json_number("gone", gone);
    json_pair("unreturned", unreturned, FREE);
    json_addresses("arenas", arenas, ARENAS);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "page_patterns", 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_ARENA_MAX, 64);
    expect(ARENAS + 1);
    for (int i = 0; i < ARENAS; i++)
        spawn(numbered("arena-", i), work, (void *)(uintptr_t)i);
    meet();
    plant();
    gone = count_gone(returned, RETURNED);
    truth_end(details);
}
