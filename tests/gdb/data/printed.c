/* Objects for the pretty-printers: sound, broken, and such that only bear the name of something known. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Members as in Linux' include/linux/types.h. */
struct list_head {
    struct list_head *next, *prev;
};
struct hlist_node {
    struct hlist_node *next, **pprev;
};
struct hlist_head {
    struct hlist_node *first;
};

/* Members as in GLib's glist.h. */
typedef struct _GList {
    void *data;
    struct _GList *next;
    struct _GList *prev;
} GList;

/* Members as in Unbound's util/storage/lruhash.h. */
struct lruhash_entry {
    uint64_t lock[7];
    struct lruhash_entry *overflow_next, *lru_next, *lru_prev;
    uint32_t hash;
    void *key, *data;
};
struct lruhash_bin {
    int lock;
    struct lruhash_entry *overflow_list;
};
struct lruhash {
    int lock;
    void *functions[6];
    size_t size;
    int size_mask;
    struct lruhash_bin *array;
    struct lruhash_entry *lru_start, *lru_end;
    size_t num, space_used, space_max;
};

/* Not redis', nor malloc's. */
struct dict {
    int words;
};
struct plain {
    int first;
    struct dict inner;
};

struct list_head ring, empty, unlinked = {(void *)0x100, (void *)0x122}, dangling, members[5];
struct hlist_head hashed;
struct hlist_node hashed_nodes[3];
GList *glist, *glist_rho;
struct lruhash table, wild_table = {.size = (size_t)1 << 60, .array = (void *)16}, zero_table;
struct lruhash_bin bins[8];
struct lruhash_entry entries[8];
struct dict words = {3};
struct plain plain = {1, {2}};

static void *unmapped(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    return page;
}

static GList *new_list(int count)
{
    GList *first = NULL;
    while (count--) {
        GList *node = calloc(1, sizeof *node);
        node->data = &table;
        node->next = first;
        if (first)
            first->prev = node;
        first = node;
    }
    return first;
}

static void build(void)
{
    struct list_head *last = &ring;
    for (int i = 0; i < 5; i++, last = last->next) {
        last->next = &members[i];
        members[i].prev = last;
    }
    last->next = &ring;
    ring.prev = last;
    empty.next = empty.prev = &empty;
    dangling.next = unmapped();
    hashed.first = &hashed_nodes[0];
    hashed_nodes[0].next = &hashed_nodes[1];
    hashed_nodes[1].next = &hashed_nodes[2];
    glist = new_list(4);
    glist_rho = new_list(6);
    glist_rho->next->next->next->next->next->next = glist_rho->next;
    table.size = 8;
    table.size_mask = 7;
    table.array = bins;
    table.num = 6;
    for (int i = 0; i < 3; i++) { /* bin 1: three; bin 3: a cycle of two; bin 5: one, then nowhere */
        entries[i].overflow_next = i < 2 ? &entries[i + 1] : NULL;
        entries[i].hash = 0x10u * (unsigned)i + 1;
        entries[i].key = &entries[i];
    }
    bins[1].overflow_list = &entries[0];
    bins[3].overflow_list = &entries[3];
    entries[3].overflow_next = &entries[4];
    entries[4].overflow_next = &entries[3];
    bins[5].overflow_list = &entries[5];
    entries[5].overflow_next = unmapped();
}

__attribute__((noinline)) void built(void) { __asm__ volatile(""); }

int main(void)
{
    build();
    built();
    return 0;
}
