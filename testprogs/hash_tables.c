/* Groups of chained hash tables, laid out as Unbound 1.17.0's slabhash and lruhash are, each spoilt in one way.
 *
 * --modes A,B,…   which groups there are (all); each is a global, `NAME_cache`; `cache` is the first
 * --entries N     entries of each group (20000)
 * --slabs N       tables of each group, a power of two (4)
 * --bins N        bins of a table at first; it doubles when it has as many entries (1024)
 *
 * stale       four entries of five got a new name and kept the hash of the old one: one stored hash
 * incident    one entry in eight did
 * wildcard    all of them did: a group with a single stored hash, as a constant hash function makes it
 * weak        the hash function knows 16 values only
 * low         the hash function's low 12 bits are constant
 * attack      one entry in eight has a hash of its own, chosen for one bin
 * skewed      the hash function's high bits are nearly constant: nine of ten in one slab
 * small       the tables do not grow
 * duplicate   four entries of five are the same key again
 * misplaced   one entry in a hundred has a hash that belongs to another bin
 * miscounted  a table counts seven entries too many
 * unlisted    an entry is missing in a table's LRU list
 * growing     a table is stopped half-way in doubling: the entries of half its bins are in a new array, which it
 *             does not know yet; its lock is held
 * healthy     nothing is wrong
 * garbage     `garbage_cache` leads to bytes that are no group, `huge_table` claims 2^40 bins
 * rehash      not such a group but one table as redis 7.0's dict, half-way in its rehash: `keyspace`
 *
 * The healthy twin has the same groups with a fair hash, grown, counted and listed as they should be.
 *
 * The truth is counted in a record of the insertions, not in the tables.
 */
#define LEDGER_SLOTS (1u << 17)
#include "truth.h"
#include "lruhash.h"

/* Members as in redis 7.0's dict.h. */
typedef struct dictEntry {
    void *key;
    union {
        void *val;
        uint64_t u64;
        int64_t s64;
        double d;
    } v;
    struct dictEntry *next;
} dictEntry;

typedef struct dict {
    void *type;
    dictEntry **ht_table[2];
    unsigned long ht_used[2];
    long rehashidx;
    int16_t pauserehash;
    signed char ht_size_exp[2];
} dict;

struct slabhash *cache;
struct slabhash *stale_cache, *incident_cache, *wildcard_cache, *weak_cache, *low_cache, *attack_cache, *skewed_cache;
struct slabhash *small_cache, *duplicate_cache, *misplaced_cache, *miscounted_cache, *unlisted_cache, *growing_cache;
struct slabhash *healthy_cache, *garbage_cache;
struct lruhash huge_table;
dict *keyspace;

/* ---- hashes ---- */

#define SAME_HASH 0xdd2d5a17u

static uint32_t stale_hash(size_t i) { return i % 5 ? SAME_HASH : fair(i); }
static uint32_t incident_hash(size_t i) { return i % 8 ? fair(i) : SAME_HASH; }
static uint32_t wildcard_hash(size_t i) { return (void)i, SAME_HASH; }
static uint32_t weak_hash(size_t i) { return fair(fair(i) % 16); }
static uint32_t low_hash(size_t i) { return fair(i) << 12 | 0x5a5; }
static uint32_t duplicate_hash(size_t i) { return i % 5 ? SAME_HASH : fair(i); }
static uint32_t attack_hash(size_t i) { return i % 8 ? fair(i) : (uint32_t)(i / 8) << 17 | 0x15a5a; }
static uint32_t skewed_hash(size_t i) { return i % 10 ? fair(i) & 0x3fffffff : fair(i); }

/* ---- the record of insertions ---- */

struct inserted {
    uint32_t stored; /* the hash in the entry */
    uint32_t placed; /* the hash that chose its bin */
    uint32_t key;
    uint32_t slab;
};

struct mode {
    const char *name;
    struct slabhash **cache;
    uint32_t (*hash)(size_t);
    void (*spoil)(struct mode *);
    size_t fixed_load; /* entries a bin, where the tables do not grow */
    int built;
    struct inserted *record;
    size_t inserted, in_new_array;
    struct lruhash_bin *new_array;
    void *spoilt; /* the table or entry that was spoilt */
};

static size_t entries, slabs, first_bins;

/* ---- inserting ---- */

static int grows(const struct mode *mode) { return healthy || !mode->fixed_load; }

static void insert(struct mode *mode, size_t number, uint32_t hash, void *key)
{
    size_t slab = slab_of(*mode->cache, hash);
    struct cached_name *name = new_name(number);
    if (key)
        name->entry.key = key;
    add((*mode->cache)->array[slab], name, hash, grows(mode));
    mode->record[mode->inserted++] =
        (struct inserted){hash, hash, (uint32_t)(key ? 0 : number), (uint32_t)slab};
}

static void build(struct mode *mode)
{
    size_t bins = grows(mode) ? first_bins : power_below(entries / slabs / mode->fixed_load);
    struct cached_name *same = NULL;
    *mode->cache = new_group(slabs, bins);
    mode->record = pages((entries + 1) * sizeof *mode->record);
    if (!strcmp(mode->name, "duplicate") && !healthy)
        same = new_name(0);
    for (size_t i = 0; i < entries; i++)
        insert(mode, i + 1, healthy || !mode->hash ? fair(i) : mode->hash(i), i % 5 ? same : NULL);
    mode->built = 1;
    if (mode->spoil && !healthy)
        mode->spoil(mode);
}

/* ---- spoiling ---- */

/* Entries of one table, newest first, are those of the record of its slab, backwards. */
static void misplace(struct mode *mode)
{
    struct slabhash *group = *mode->cache;
    struct lruhash_entry **at = malloc(slabs * sizeof *at);
    for (size_t i = 0; i < slabs; i++)
        at[i] = group->array[i]->lru_end;
    for (size_t i = 0; i < mode->inserted; i++) {
        struct inserted *inserted = &mode->record[i];
        struct lruhash_entry *entry = at[inserted->slab];
        at[inserted->slab] = entry->lru_prev;
        if (i % 100)
            continue;
        inserted->stored = entry->hash ^= 0x2b; /* another bin of the same slab */
    }
    free(at);
}

static void miscount(struct mode *mode)
{
    struct lruhash *table = (*mode->cache)->array[slabs > 1];
    table->num += 7;
    mode->spoilt = table;
}

static void unlist(struct mode *mode)
{
    struct lruhash *table = (*mode->cache)->array[slabs > 1];
    struct lruhash_entry *entry = table->lru_start->lru_next;
    entry->lru_prev->lru_next = entry->lru_next;
    entry->lru_next->lru_prev = entry->lru_prev;
    mode->spoilt = entry;
}

static void stop_growing(struct mode *mode)
{
    struct lruhash *table = (*mode->cache)->array[slabs > 1];
    pthread_spin_lock(&table->lock);
    mode->new_array = new_bins(table->size * 2);
    mode->in_new_array = split(table, mode->new_array, table->size / 2);
    mode->spoilt = table;
}

static struct mode modes[] = {
    {.name = "stale", .cache = &stale_cache, .hash = stale_hash},
    {.name = "incident", .cache = &incident_cache, .hash = incident_hash},
    {.name = "wildcard", .cache = &wildcard_cache, .hash = wildcard_hash},
    {.name = "weak", .cache = &weak_cache, .hash = weak_hash},
    {.name = "low", .cache = &low_cache, .hash = low_hash},
    {.name = "attack", .cache = &attack_cache, .hash = attack_hash},
    {.name = "skewed", .cache = &skewed_cache, .hash = skewed_hash},
    {.name = "small", .cache = &small_cache, .fixed_load = 50},
    {.name = "duplicate", .cache = &duplicate_cache, .hash = duplicate_hash},
    {.name = "misplaced", .cache = &misplaced_cache, .spoil = misplace},
    {.name = "miscounted", .cache = &miscounted_cache, .spoil = miscount},
    {.name = "unlisted", .cache = &unlisted_cache, .spoil = unlist},
    {.name = "growing", .cache = &growing_cache, .spoil = stop_growing},
    {.name = "healthy", .cache = &healthy_cache},
};
#define MODES (sizeof modes / sizeof *modes)

/* ---- the table as redis' ---- */

static size_t moved_keys;
static struct inserted *dict_record;

static void dict_put(int table, dictEntry *entry, uint32_t hash)
{
    dictEntry **bin = &keyspace->ht_table[table][hash & ((1u << keyspace->ht_size_exp[table]) - 1)];
    entry->next = *bin;
    *bin = entry;
    keyspace->ht_used[table]++;
}

/* 2^k bins, full; below rehashidx they are empty and their entries in the second array. */
static void build_dict(void)
{
    size_t count = power_below(entries), half = healthy ? 0 : count / 2;
    keyspace = malloc(sizeof *keyspace);
    memset(keyspace, 0, sizeof *keyspace);
    keyspace->rehashidx = healthy ? -1 : (long)half;
    keyspace->ht_size_exp[0] = (signed char)__builtin_ctzl(count);
    keyspace->ht_size_exp[1] = (signed char)(healthy ? -1 : __builtin_ctzl(count) + 1);
    keyspace->ht_table[0] = pages(count * sizeof(dictEntry *));
    if (!healthy)
        keyspace->ht_table[1] = pages(2 * count * sizeof(dictEntry *));
    dict_record = pages(count * sizeof *dict_record);
    dictEntry *made = malloc(count * sizeof *made);
    char *keys = malloc(count * 16);
    for (size_t i = 0; i < count; i++) {
        uint32_t hash = fair(i);
        int table = (hash & (count - 1)) < half;
        snprintf(made[i].key = keys + 16 * i, 16, "key:%zu", i);
        made[i].v.u64 = i;
        dict_put(table, &made[i], hash);
        moved_keys += (size_t)table;
        dict_record[i] = (struct inserted){hash, hash, (uint32_t)i, (uint32_t)table};
    }
}

static void build_garbage(void)
{
    garbage_cache = malloc(sizeof *garbage_cache);
    memset(garbage_cache, 0x42, sizeof *garbage_cache);
    huge_table = *new_table(64);
    huge_table.size = (size_t)1 << (sizeof(size_t) * 5);
}

/* ---- counting ---- */

/* Sort by one byte after the other. */
static void sort(uint32_t *values, size_t count)
{
    uint32_t *other = pages((count + 1) * sizeof *other), *from = values, *to = other;
    for (int shift = 0; shift < 32; shift += 8) {
        size_t starts[257] = {0};
        for (size_t i = 0; i < count; i++)
            starts[(from[i] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++)
            starts[i + 1] += starts[i];
        for (size_t i = 0; i < count; i++)
            to[starts[from[i] >> shift & 255]++] = from[i];
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    munmap(other, (count + 1) * sizeof *other);
}

static size_t distinct(uint32_t *values, size_t count)
{
    size_t found = count != 0;
    sort(values, count);
    for (size_t i = 1; i < count; i++)
        found += values[i] != values[i - 1];
    return found;
}

struct bins_count {
    uint32_t *lengths;
    size_t bins, longest, at, nonempty, walked;
};

static void count_one(struct bins_count *count, size_t bin)
{
    count->nonempty += !count->lengths[bin]++;
    count->walked++;
}

static void find_longest(struct bins_count *count)
{
    for (size_t i = 0; i < count->bins; i++)
        if (count->lengths[i] > count->longest) {
            count->longest = count->lengths[i];
            count->at = i;
        }
}

/* [[length, bins]] */
static void json_histogram(const struct bins_count *count)
{
    uint32_t *bins = pages((count->longest + 1) * sizeof *bins);
    for (size_t i = 0; i < count->bins; i++)
        bins[count->lengths[i]]++;
    json_open("histogram", '[');
    for (size_t length = 0; length <= count->longest; length++)
        if (bins[length]) {
            json_open(NULL, '[');
            json_number(NULL, length);
            json_number(NULL, bins[length]);
            json_close(']');
        }
    json_close(']');
    munmap(bins, (count->longest + 1) * sizeof *bins);
}

static void json_count(const struct bins_count *count)
{
    json_number("bins", count->bins);
    json_number("walked", count->walked);
    json_number("nonempty", count->nonempty);
    json_number("max_len", count->longest);
    json_number("max_bin", count->at);
    json_histogram(count);
}

/* A table in the middle of doubling knows only the bins that were not moved yet. */
static int is_in(const struct mode *mode, size_t slab, const struct inserted *inserted)
{
    struct lruhash *table = (*mode->cache)->array[slab];
    if (inserted->slab != slab)
        return 0;
    return !(mode->new_array && mode->spoilt == table) ||
           (inserted->placed & (table->size - 1)) >= table->size / 2;
}

/* Of all entries in the table, or of those in its longest bin. */
static void json_distinct(const struct mode *mode, size_t slab, const struct bins_count *count, int whole)
{
    size_t bytes = (mode->inserted + 1) * sizeof(uint32_t), found = 0;
    uint32_t *hashes = pages(bytes), *keys = pages(bytes);
    for (size_t i = 0; i < mode->inserted; i++) {
        const struct inserted *inserted = &mode->record[i];
        if (!is_in(mode, slab, inserted) || (!whole && (inserted->placed & (count->bins - 1)) != count->at))
            continue;
        hashes[found] = inserted->stored;
        keys[found++] = inserted->key;
    }
    json_number(whole ? "distinct_hashes" : "worst_hashes", distinct(hashes, found));
    json_number(whole ? "distinct_keys" : "worst_keys", distinct(keys, found));
    munmap(hashes, bytes);
    munmap(keys, bytes);
}

static void json_table(const struct mode *mode, size_t slab)
{
    struct lruhash *table = (*mode->cache)->array[slab];
    size_t misplaced = 0;
    struct bins_count count = {.lengths = pages(table->size * sizeof(uint32_t)), .bins = table->size};
    for (size_t i = 0; i < mode->inserted; i++) {
        const struct inserted *inserted = &mode->record[i];
        if (!is_in(mode, slab, inserted))
            continue;
        count_one(&count, inserted->placed & (table->size - 1));
        misplaced += ((inserted->placed ^ inserted->stored) & (table->size - 1)) != 0;
    }
    find_longest(&count);
    json_open(NULL, '{');
    json_number("index", slab);
    json_address("address", table);
    json_address("array", table->array);
    json_number("entries", table->num);
    json_count(&count);
    json_number("misplaced", misplaced);
    json_distinct(mode, slab, &count, 1);
    json_distinct(mode, slab, &count, 0);
    json_close('}');
    munmap(count.lengths, table->size * sizeof(uint32_t));
}

static void json_mode(const struct mode *mode)
{
    json_open(mode->name, '{');
    json_text("name", mode->name);
    json_address("address", *mode->cache);
    json_address("variable", mode->cache);
    json_number("total", mode->inserted);
    if (mode->spoilt)
        json_address("spoilt", mode->spoilt);
    if (mode->new_array)
        json_pair("new_array", mode->new_array, mode->in_new_array);
    json_open("tables", '[');
    for (size_t i = 0; i < slabs; i++)
        json_table(mode, i);
    json_close(']');
    json_close('}');
}

/* Bins of both arrays, numbered through. */
static void json_dict(void)
{
    size_t first = (size_t)1 << keyspace->ht_size_exp[0], total = healthy ? first : 3 * first;
    struct bins_count count = {.lengths = pages(total * sizeof(uint32_t)), .bins = total};
    for (size_t i = 0; i < first; i++) {
        size_t mask = dict_record[i].slab ? 2 * first - 1 : first - 1;
        count_one(&count, (dict_record[i].placed & mask) + (dict_record[i].slab ? first : 0));
    }
    find_longest(&count);
    json_open("rehash", '{');
    json_address("address", keyspace);
    json_address("variable", &keyspace);
    json_number("entries", first);
    json_number("moved", moved_keys);
    json_number("rehashidx", healthy ? 0 : (uintmax_t)keyspace->rehashidx);
    json_count(&count);
    json_close('}');
    munmap(count.lengths, total * sizeof(uint32_t));
}

static void details(void)
{
    json_open("groups", '{');
    for (size_t i = 0; i < MODES; i++)
        if (modes[i].built)
            json_mode(&modes[i]);
    if (keyspace)
        json_dict();
    json_close('}');
    json_number("entry_bytes", sizeof(struct cached_name));
}

static int is_wanted(const char *wanted, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = wanted; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
            return 1;
    }
    return !strcmp(wanted, "all");
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "hash_tables", 1);
    const char *wanted = text_option("modes", "all");
    entries = number_option("entries", 20000);
    slabs = power_below(number_option("slabs", 4));
    first_bins = power_below(number_option("bins", 1024));
    for (size_t i = 0; i < MODES; i++)
        if (is_wanted(wanted, modes[i].name)) {
            build(&modes[i]);
            cache = cache ? cache : *modes[i].cache;
        }
    if (is_wanted(wanted, "rehash"))
        build_dict();
    if (is_wanted(wanted, "garbage") && !healthy)
        build_garbage();
    truth_end(details);
}
