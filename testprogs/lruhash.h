/* A hash table whose structures have the members of Unbound 1.17.0's util/storage/{lruhash,slabhash}.h; the code
 * is our own. Include it after truth.h.
 */
#ifndef LRUHASH_H
#define LRUHASH_H

struct lruhash_entry {
    pthread_rwlock_t lock;
    struct lruhash_entry *overflow_next;
    struct lruhash_entry *lru_next;
    struct lruhash_entry *lru_prev;
    uint32_t hash;
    void *key;
    void *data;
};

struct lruhash_bin {
    pthread_spinlock_t lock;
    struct lruhash_entry *overflow_list;
};

struct lruhash {
    pthread_spinlock_t lock;
    size_t (*sizefunc)(void *, void *);
    int (*compfunc)(void *, void *);
    void (*delkeyfunc)(void *, void *);
    void (*deldatafunc)(void *, void *);
    void (*markdelfunc)(void *);
    void *cb_arg;
    size_t size;
    int size_mask;
    struct lruhash_bin *array;
    struct lruhash_entry *lru_start;
    struct lruhash_entry *lru_end;
    size_t num;
    size_t space_used;
    size_t space_max;
};

struct slabhash {
    size_t size;
    uint32_t mask;
    unsigned int shift;
    struct lruhash **array;
};

/* What the tables hold; its key is its own address. */
struct cached_name {
    struct lruhash_entry entry;
    char name[24];
};

/* A hash function that is fair: pairs of equal hashes occur as often as chance has it. */
static UNUSED uint32_t fair(size_t i)
{
    uint64_t mixed = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)(mixed >> 20);
}

static void *pages(size_t bytes)
{
    void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        give_up("lruhash: no memory");
    return fresh;
}

static UNUSED size_t power_below(size_t number)
{
    size_t power = 1;
    while (power * 2 <= number)
        power *= 2;
    return power;
}

/* Bins come from mappings of their own, so that arrays outgrown leave no holes in the heap. */
static struct lruhash_bin *new_bins(size_t count)
{
    struct lruhash_bin *bins = pages(count * sizeof *bins);
    for (size_t i = 0; i < count; i++)
        pthread_spin_init(&bins[i].lock, 0);
    return bins;
}

static struct lruhash *new_table(size_t bins)
{
    struct lruhash *table = malloc(sizeof *table);
    memset(table, 0, sizeof *table);
    pthread_spin_init(&table->lock, 0);
    table->size = bins;
    table->size_mask = (int)(bins - 1);
    table->array = new_bins(bins);
    table->space_max = (size_t)1 << 30;
    return table;
}

/* Slabs are chosen by the hash's high bits. */
static UNUSED struct slabhash *new_group(size_t slabs, size_t bins)
{
    struct slabhash *group = malloc(sizeof *group);
    group->size = slabs;
    group->shift = slabs == 1 ? 0 : 32 - (unsigned)__builtin_ctzl(slabs);
    group->mask = (uint32_t)(slabs - 1) << group->shift;
    group->array = malloc(slabs * sizeof *group->array);
    for (size_t i = 0; i < slabs; i++)
        group->array[i] = new_table(bins);
    return group;
}

static UNUSED size_t slab_of(const struct slabhash *group, uint32_t hash)
{
    return (hash & group->mask) >> group->shift;
}

static void put(struct lruhash_bin *bin, struct lruhash_entry *entry)
{
    entry->overflow_next = bin->overflow_list;
    bin->overflow_list = entry;
}

/* Move the entries of the first `count` bins to an array twice as large; returns how many. */
static size_t split(struct lruhash *table, struct lruhash_bin *fresh, size_t count)
{
    size_t mask = table->size * 2 - 1, moved = 0;
    for (size_t i = 0; i < count; i++) {
        struct lruhash_entry *entry = table->array[i].overflow_list, *next;
        table->array[i].overflow_list = NULL;
        for (; entry; entry = next, moved++) {
            next = entry->overflow_next;
            put(&fresh[entry->hash & mask], entry);
        }
    }
    return moved;
}

static void grow(struct lruhash *table)
{
    struct lruhash_bin *fresh = new_bins(table->size * 2);
    split(table, fresh, table->size);
    munmap(table->array, table->size * sizeof *table->array);
    table->array = fresh;
    table->size *= 2;
    table->size_mask = (int)(table->size - 1);
}

static void use_first(struct lruhash *table, struct lruhash_entry *entry)
{
    entry->lru_next = table->lru_start;
    entry->lru_prev = NULL;
    if (table->lru_start)
        table->lru_start->lru_prev = entry;
    else
        table->lru_end = entry;
    table->lru_start = entry;
}

#define POOLED 512

static struct cached_name *new_name(size_t number)
{
    static struct cached_name *pool;
    static size_t left;
    if (!left) {
        pool = malloc(POOLED * sizeof *pool);
        memset(pool, 0, POOLED * sizeof *pool);
        left = POOLED;
    }
    struct cached_name *name = &pool[--left];
    pthread_rwlock_init(&name->entry.lock, NULL);
    snprintf(name->name, sizeof name->name, "w%zu.example.net.", number);
    name->entry.key = name;
    name->entry.data = name->name;
    return name;
}

/* The table doubles when it has as many entries as bins. */
static void add(struct lruhash *table, struct cached_name *name, uint32_t hash, int grows)
{
    name->entry.hash = hash;
    put(&table->array[hash & (size_t)table->size_mask], &name->entry);
    use_first(table, &name->entry);
    table->num++;
    table->space_used += sizeof *name;
    if (grows && table->num >= table->size)
        grow(table);
}

#endif
