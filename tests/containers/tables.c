/* Chained hash tables of servers, models of our own in the layouts that the shapes name as their source:
   memcached's assoc, SQLite's Hash, PostgreSQL's dynahash, Unbound's lruhash and slabhash. Each empty, with one
   entry, with many, in the midst of growing where it grows by steps, and damaged. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "truth.h"

#define NOWHERE ((void *)0x7f0000000008)

static uint32_t hash_of(uint32_t number) {
    number = (number ^ number >> 16) * 0x45d9f3b;
    number = (number ^ number >> 16) * 0x45d9f3b;
    return number ^ number >> 16;
}

static void *zeroed(size_t count, size_t size) {
    return calloc(count ? count : 1, size);
}

/* ---- memcached: its table is global; main leaves it in the midst of an expansion ---- */

typedef struct _stritem {
    struct _stritem *next, *prev;
    struct _stritem *h_next;
    unsigned int time, exptime;
    int nbytes;
    unsigned short refcount;
    uint16_t it_flags;
    uint8_t slabs_clsid, nkey;
    union {
        uint64_t cas;
        char end;
    } data[];
} item;

struct stats_state {
    uint64_t curr_items, curr_bytes;
} stats_state;
unsigned int hashpower = 10;
static item **primary_hashtable, **old_hashtable;
static bool expanding;
static uint64_t expand_bucket;

static uint32_t item_hash(const item *it) {
    return hash_of(atoi((const char *)it->data + 8));
}

static item **item_bin(uint32_t hash) {
    uint64_t old = hash & ((1u << (hashpower - 1)) - 1);
    if (expanding && old >= expand_bucket)
        return &old_hashtable[old];
    return &primary_hashtable[hash & ((1u << hashpower) - 1)];
}

static void assoc_fill(int count) {
    primary_hashtable = zeroed(1u << hashpower, sizeof(item *));
    for (int number = 0; number < count; number++) {
        item *it = zeroed(1, sizeof *it + 40);
        it->it_flags = 1 | 2;
        it->nkey = snprintf((char *)it->data + 8, 30, "%d:key", number);
        item **bin = item_bin(item_hash(it));
        it->h_next = *bin, *bin = it;
    }
    stats_state.curr_items = count;
}

static void assoc_expand(uint64_t steps) {
    old_hashtable = primary_hashtable;
    primary_hashtable = zeroed(1u << ++hashpower, sizeof(item *));
    expanding = true;
    for (; expand_bucket < steps; expand_bucket++) {
        item *next, *it = old_hashtable[expand_bucket];
        old_hashtable[expand_bucket] = NULL;
        for (; it; it = next) {
            item **bin = &primary_hashtable[item_hash(it) & ((1u << hashpower) - 1)];
            next = it->h_next;
            it->h_next = *bin, *bin = it;
        }
    }
}

static void memcached(void) {
    assoc_fill(1800);
    assoc_expand(300);
    uint64_t size = 1u << hashpower;
    truth_case("memcached", "memcached-assoc", "primary_hashtable", "--shape memcached-assoc", size + size / 2, 1800);
    for (uint64_t bin = 0; bin < size + size / 2; bin++)
        for (item *it = bin < size ? primary_hashtable[bin] : old_hashtable[bin - size]; it; it = it->h_next)
            truth_node(bin, it);
}

/* ---- SQLite: one list of all elements, a bin is where its own begin and how many they are ---- */

typedef struct Hash Hash;
typedef struct HashElem HashElem;
struct Hash {
    unsigned int htsize, count;
    HashElem *first;
    struct _ht {
        unsigned int count;
        HashElem *chain;
    } *ht;
};
struct HashElem {
    HashElem *next, *prev;
    void *data;
    const char *pKey;
#ifdef SQLITE_STORES_HASH
    unsigned int h;
#endif
};
#ifdef SQLITE_STORES_HASH
#define SQLITE_SHAPE "sqlite-hash"
#else
#define SQLITE_SHAPE "sqlite-hash-old"
#endif

Hash hash_empty, hash_small, hash_many, hash_cut, hash_miscounted;

/* Put an element before the first of its bin, or else before all. */
static void hash_insert(Hash *table, int number) {
    HashElem *made = zeroed(1, sizeof *made), *before = NULL;
    char *key = zeroed(1, 16);
    snprintf(key, 16, "t%d", number);
    made->pKey = key, made->data = made;
#ifdef SQLITE_STORES_HASH
    made->h = hash_of(number);
#endif
    table->count++;
    if (table->ht) {
        struct _ht *bin = &table->ht[hash_of(number) % table->htsize];
        before = bin->count++ ? bin->chain : NULL;
        bin->chain = made;
    }
    before = before ? before : table->first;
    made->next = before;
    if (before) {
        made->prev = before->prev;
        before->prev = made;
    }
    if (made->prev)
        made->prev->next = made;
    else
        table->first = made;
}

static void hash_fill(Hash *table, int bins, int count) {
    if (bins)
        table->ht = zeroed(bins, sizeof *table->ht), table->htsize = bins;
    for (int number = 0; number < count; number++)
        hash_insert(table, number);
}

static void say_hash(const char *name, const Hash *table) {
    truth_case(name, SQLITE_SHAPE, name, "", table->ht ? table->htsize : 1, table->count);
    if (!table->ht) {
        HashElem *each = table->first;
        for (unsigned left = table->count; left; left--, each = each->next)
            truth_node(0, each);
    }
    for (unsigned bin = 0; table->ht && bin < table->htsize; bin++) {
        HashElem *each = table->ht[bin].chain;
        for (unsigned left = table->ht[bin].count; left; left--, each = each->next)
            truth_node(bin, each);
    }
}

static void sqlite(void) {
    hash_fill(&hash_small, 0, 4);
    hash_fill(&hash_many, 150, 300);
    say_hash("hash_empty", &hash_empty);
    say_hash("hash_small", &hash_small);
    say_hash("hash_many", &hash_many);
    hash_fill(&hash_cut, 1, 20); /* ends after 12 of 20 */
    truth_case("hash_cut", SQLITE_SHAPE, "hash_cut", "", 1, 20);
    HashElem *each = hash_cut.first;
    for (int left = 12; left; left--, each = left ? each->next : each)
        truth_node(0, each);
    each->next = NOWHERE;
    truth_broken(0, "bad-pointer");
    hash_fill(&hash_miscounted, 10, 20);
    hash_miscounted.count = 21;
    say_hash("hash_miscounted", &hash_miscounted);
    truth_problem("table-count");
}

/* ---- PostgreSQL: a directory of segments ---- */

typedef struct HASHELEMENT {
    struct HASHELEMENT *link;
    uint32_t hashvalue;
} HASHELEMENT;
typedef HASHELEMENT *HASHBUCKET;
typedef HASHBUCKET *HASHSEGMENT;
typedef struct {
    unsigned char mutex;
    long nentries;
    HASHELEMENT *freeList;
} FreeListData;
typedef struct HASHHDR {
    FreeListData freeList[32];
    long dsize, nsegs;
    uint32_t max_bucket, high_mask, low_mask;
    size_t keysize, entrysize;
    long num_partitions, max_dsize, ssize;
    int sshift, nelem_alloc;
} HASHHDR;
typedef struct HTAB HTAB;
struct HTAB {
    HASHHDR *hctl;
    HASHSEGMENT *dir;
    void *functions[4], *hcxt;
    char *tabname;
    bool isshared, isfixed, frozen;
    size_t keysize;
    long ssize;
    int sshift;
};
struct relation { /* an entry: its key first */
    uint64_t number;
    char name[24];
};

HTAB *pg_empty, *pg_many, *pg_partitioned, *pg_misplaced, *pg_stray;

static HASHBUCKET *pg_bin(HTAB *table, uint32_t hash) {
    uint32_t bin = hash & table->hctl->high_mask;
    if (bin > table->hctl->max_bucket)
        bin &= table->hctl->low_mask;
    return &table->dir[bin >> table->sshift][bin & (table->ssize - 1)];
}

/* A table of so many bins, which need be no power of two: it is split bin by bin. */
static HTAB *pg_create(uint32_t bins, int partitions) {
    HTAB *table = zeroed(1, sizeof *table);
    HASHHDR *head = table->hctl = zeroed(1, sizeof *head);
    uint32_t whole = 1;
    while (whole * 2 <= bins)
        whole *= 2;
    head->max_bucket = bins - 1, head->low_mask = whole - 1, head->high_mask = 2 * whole - 1;
    head->ssize = table->ssize = 256, head->sshift = table->sshift = 8;
    head->keysize = table->keysize = sizeof(uint64_t), head->entrysize = sizeof(struct relation);
    head->num_partitions = partitions;
    head->nsegs = (bins + 255) / 256, head->dsize = 256;
    table->dir = zeroed(head->dsize, sizeof(HASHSEGMENT));
    for (long at = 0; at < head->nsegs; at++)
        table->dir[at] = zeroed(head->ssize, sizeof(HASHBUCKET));
    return table;
}

static HTAB *pg_fill(uint32_t bins, int partitions, uint32_t count) {
    HTAB *table = pg_create(bins, partitions);
    for (uint32_t number = 0; number < count; number++) {
        HASHELEMENT *made = zeroed(1, 16 + sizeof(struct relation));
        ((struct relation *)((char *)made + 16))->number = number;
        made->hashvalue = hash_of(number);
        HASHBUCKET *bin = pg_bin(table, made->hashvalue);
        made->link = *bin, *bin = made;
        table->hctl->freeList[partitions ? made->hashvalue % 32 : 0].nentries++;
    }
    return table;
}

static void say_pg(const char *name, HTAB *table, long entries) {
    truth_case(name, "postgresql-dynahash", name, "", table->hctl->max_bucket + 1, entries);
    for (uint32_t bin = 0; bin <= table->hctl->max_bucket; bin++)
        for (HASHELEMENT *each = table->dir[bin >> 8][bin & 255]; each; each = each->link)
            truth_node(bin, each);
}

static void postgresql(void) {
    say_pg("pg_empty", pg_empty = pg_create(16, 0), 0);
    say_pg("pg_many", pg_many = pg_fill(700, 0, 1000), 1000);
    say_pg("pg_partitioned", pg_partitioned = pg_fill(512, 16, 900), 900);
    pg_misplaced = pg_fill(300, 0, 400);
    HASHBUCKET *from = pg_bin(pg_misplaced, hash_of(1)), *to = pg_bin(pg_misplaced, hash_of(2));
    HASHELEMENT *moved = *from;
    *from = moved->link, moved->link = *to, *to = moved;
    say_pg("pg_misplaced", pg_misplaced, 400);
    truth_problem("misplaced-entry");
    pg_stray = pg_fill(300, 0, 400);
    free(pg_stray->dir[1]);
    pg_stray->dir[1] = NOWHERE; /* a segment is gone */
    truth_case("pg_stray", "postgresql-dynahash", "pg_stray", "", 300, 400);
    for (uint32_t bin = 0; bin < 256; bin++)
        for (HASHELEMENT *each = pg_stray->dir[0][bin]; each; each = each->link)
            truth_node(bin, each);
    for (uint32_t bin = 256; bin < 300; bin++)
        truth_broken(bin, "bad-pointer");
}

/* ---- Unbound: tables of bins with locks, and a group of them chosen by the hash's high bits ---- */

struct lruhash_entry {
    pthread_rwlock_t lock;
    struct lruhash_entry *overflow_next, *lru_next, *lru_prev;
    uint32_t hash;
    void *key, *data;
};
struct lruhash_bin {
    pthread_spinlock_t lock;
    struct lruhash_entry *overflow_list;
};
struct lruhash {
    pthread_spinlock_t lock;
    void *functions[5], *cb_arg;
    size_t size;
    int size_mask;
    struct lruhash_bin *array;
    struct lruhash_entry *lru_start, *lru_end;
    size_t num, space_used, space_max;
#ifdef UNBOUND_COUNTS_COLLISIONS
    size_t max_collisions;
#endif
};
struct slabhash {
    size_t size;
    uint32_t mask;
    unsigned int shift;
    struct lruhash **array;
};

struct lruhash *lru_empty, *lru_one, *lru_many, *lru_short, *lru_wrong;
struct slabhash *slabs;

static struct lruhash *lru_create(size_t bins) {
    struct lruhash *table = zeroed(1, sizeof *table);
    table->array = zeroed(bins, sizeof *table->array);
    table->size = bins, table->size_mask = (int)bins - 1;
    return table;
}

static struct lruhash_entry *lru_insert(struct lruhash *table, uint32_t hash) {
    struct lruhash_entry *made = zeroed(1, sizeof *made);
    struct lruhash_bin *bin = &table->array[hash & table->size_mask];
    made->hash = hash, made->key = made;
    made->overflow_next = bin->overflow_list, bin->overflow_list = made;
    made->lru_next = table->lru_start;
    if (table->lru_start)
        table->lru_start->lru_prev = made;
    else
        table->lru_end = made;
    table->lru_start = made;
    table->num++;
    return made;
}

static struct lruhash *lru_fill(size_t bins, uint32_t count) {
    struct lruhash *table = lru_create(bins);
    for (uint32_t number = 0; number < count; number++)
        lru_insert(table, hash_of(number));
    return table;
}

static void say_lru_bins(const struct lruhash *table, int first) {
    for (size_t bin = 0; bin < table->size; bin++)
        for (struct lruhash_entry *each = table->array[bin].overflow_list; each; each = each->overflow_next)
            truth_node(first + bin, each);
}

static void say_lru(const char *name, const struct lruhash *table) {
    truth_case(name, "unbound-lruhash", name, "", table->size, table->num);
    say_lru_bins(table, 0);
}

/* Bins of a group are numbered through here, slab by slab. */
static void slab_group(void) {
    slabs = zeroed(1, sizeof *slabs);
    slabs->size = 4, slabs->shift = 30, slabs->mask = 0xc0000000;
    slabs->array = zeroed(4, sizeof *slabs->array);
    for (int at = 0; at < 4; at++)
        slabs->array[at] = lru_create(64 << at);
    for (uint32_t number = 0; number < 600; number++)
        lru_insert(slabs->array[(hash_of(number) & slabs->mask) >> slabs->shift], hash_of(number));
    truth_case("slabs", "unbound-slabhash", "slabs", "", 64 + 128 + 256 + 512, 600);
    for (int at = 0, first = 0; at < 4; first += 64 << at++)
        say_lru_bins(slabs->array[at], first);
}

static void unbound(void) {
    say_lru("lru_empty", lru_empty = lru_create(1024));
    say_lru("lru_one", lru_one = lru_fill(1024, 1));
    say_lru("lru_many", lru_many = lru_fill(1024, 2000));
    lru_short = lru_fill(64, 100); /* its second list ends early */
    lru_short->lru_start->lru_next->lru_next->lru_next = NULL;
    say_lru("lru_short", lru_short);
    truth_problem("lru-count");
    lru_wrong = lru_fill(64, 100);
    lru_wrong->array[hash_of(7) & 63].overflow_list->hash ^= 1;
    lru_wrong->num = 99;
    say_lru("lru_wrong", lru_wrong);
    truth_problem("misplaced-entry");
    truth_problem("table-count");
    slab_group();
}

int main(void) {
    memcached();
    sqlite();
    postgresql();
    unbound();
    truth_park();
}
