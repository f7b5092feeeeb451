/* Redis' dict, a model of our own, in the layout that REDIS names: 6 (ht[2]), 70 (ht_table[2]), 72 (keys alone by
   tagged pointers) or 80 (the tags' new meaning). Empty, one entry, many, while it is rehashed, and damaged. */
#include <stddef.h>

#include "truth.h"

#ifndef REDIS
#define REDIS 70
#endif
#define MANY 3000
#define NOWHERE ((void *)0x7f0000000008)

typedef struct dictEntry {
    void *key;
    union {
        void *val;
        uint64_t u64;
        double d;
    } v;
    struct dictEntry *next;
} dictEntry;

typedef struct {
    void *key;
    dictEntry *next;
} dictEntryNoValue;

struct dict;
typedef struct dictType {
    uint64_t (*hashFunction)(const void *key);
    void *(*keyDup)(struct dict *, const void *);
    int (*keyCompare)(struct dict *, const void *, const void *);
#if REDIS >= 72
    unsigned int no_value : 1;
    unsigned int keys_are_odd : 1;
#if REDIS >= 80
    unsigned int force_full_rehash : 1;
#endif
    void (*onDictRelease)(struct dict *);
#endif
} dictType;

#if REDIS < 70
typedef struct dictht {
    dictEntry **table;
    unsigned long size, sizemask, used;
} dictht;

typedef struct dict {
    dictType *type;
    void *privdata;
    dictht ht[2];
    long rehashidx;
    int16_t pauserehash;
} dict;
#define TABLE(d, at) ((d)->ht[at].table)
#define USED(d, at) ((d)->ht[at].used)
#define SIZE(d, at) ((d)->ht[at].size)
#else
typedef struct dict {
    dictType *type;
    dictEntry **ht_table[2];
    unsigned long ht_used[2];
    long rehashidx;
    int16_t pauserehash;
    signed char ht_size_exp[2];
} dict;
#define TABLE(d, at) ((d)->ht_table[at])
#define USED(d, at) ((d)->ht_used[at])
#define SIZE(d, at) ((d)->ht_size_exp[at] < 0 ? 0ul : 1ul << (d)->ht_size_exp[at])
#endif

dictType plain_type, set_type, set_of_even_type;
dict *empty, *one, *many, *growing, *shrinking, *stray, *rho, *miscounted, *set, *growing_set, *even_set;

static uint64_t hash_of(const void *key) {
    return (uint64_t)strtoul((const char *)key, NULL, 10) * 0x9e3779b97f4a7c15 >> 20;
}

static void set_table(dict *d, int at, int bits) {
    TABLE(d, at) = bits < 0 ? NULL : calloc(1ul << bits, sizeof(dictEntry *));
#if REDIS < 70
    SIZE(d, at) = bits < 0 ? 0 : 1ul << bits;
    d->ht[at].sizemask = SIZE(d, at) ? SIZE(d, at) - 1 : 0;
#else
    d->ht_size_exp[at] = bits;
#endif
    USED(d, at) = 0;
}

static dict *create(dictType *type, int bits) {
    dict *d = calloc(1, sizeof *d);
    d->type = type;
    d->rehashidx = -1;
    set_table(d, 0, bits);
    set_table(d, 1, -1);
    return d;
}

/* A new string: odd addresses as sds strings have them, or even ones. */
static char *fresh_key(int number, int odd) {
    char *key = (char *)calloc(1, 32) + odd;
    snprintf(key, 16, "%d", number);
    return key;
}

static void push(dict *d, int at, void *key) {
    dictEntry **bin = &TABLE(d, at)[hash_of(key) & (SIZE(d, at) - 1)];
    USED(d, at)++;
#if REDIS >= 72
    if (d->type->no_value) {
        if (!*bin && d->type->keys_are_odd) {
            *bin = key;
            return;
        }
#if REDIS >= 80
        if (!*bin) {
            *bin = (dictEntry *)((uintptr_t)key | 2);
            return;
        }
#endif
        dictEntryNoValue *thin = calloc(1, sizeof *thin);
        thin->key = key, thin->next = *bin;
        *bin = (dictEntry *)((uintptr_t)thin | (REDIS >= 80 ? 4 : 2));
        return;
    }
#endif
    dictEntry *made = calloc(1, sizeof *made);
    made->key = key, made->next = *bin;
    *bin = made;
}

static dict *filled(dictType *type, int bits, int count, int odd) {
    dict *d = create(type, bits);
    for (int number = 0; number < count; number++)
        push(d, 0, fresh_key(number, odd));
    return d;
}

static uintptr_t address(const dictEntry *link) {
    return (uintptr_t)link & ~(uintptr_t)7;
}

/* What a stored pointer leads to: an entry, or (it is then its chain's last) a key. */
static int is_key(const dict *d, const dictEntry *link) {
#if REDIS >= 72
    return (d->type->no_value && (uintptr_t)link & 1) || (REDIS >= 80 && d->type->no_value && (uintptr_t)link & 2);
#else
    (void)d, (void)link;
    return 0;
#endif
}

static dictEntry *next_of(const dict *d, const dictEntry *link) {
    if (is_key(d, link))
        return NULL;
#if REDIS >= 72
    if (d->type->no_value)
        return ((dictEntryNoValue *)address(link))->next;
#else
    (void)d;
#endif
    return ((dictEntry *)address(link))->next;
}

static const char *shape_of(const dict *d) {
    (void)d;
#if REDIS >= 72
    if (d->type->no_value)
        return REDIS >= 80 ? "redis-8-bare-dict" : "redis-bare-dict";
#endif
    return REDIS < 70 ? "redis-dict-6" : "redis-dict";
}

static void say(const char *name, const dict *d) {
    truth_case(name, shape_of(d), name, "", SIZE(d, 0) + SIZE(d, 1), USED(d, 0) + USED(d, 1));
    for (int at = 0; at < 2; at++)
        for (unsigned long bin = 0; bin < SIZE(d, at); bin++)
            for (dictEntry *each = TABLE(d, at)[bin]; each; each = next_of(d, each))
                truth_node((at ? SIZE(d, 0) : 0) + bin, (void *)address(each));
}

/* Move the first bins to the second table, as the incremental rehash does. */
static void rehash(dict *d, int bits, int steps) {
    set_table(d, 1, bits);
    for (d->rehashidx = 0; d->rehashidx < steps; d->rehashidx++) {
        dictEntry *each = TABLE(d, 0)[d->rehashidx], *next;
        for (; each; each = next) {
            next = next_of(d, each);
            push(d, 1, is_key(d, each) ? (void *)((uintptr_t)each & ~(uintptr_t)2) : *(void **)address(each));
            USED(d, 0)--;
        }
        TABLE(d, 0)[d->rehashidx] = NULL;
    }
}

static dictEntry *last_of(const dict *d, unsigned long bin) {
    dictEntry *each = TABLE(d, 0)[bin];
    while (each->next)
        each = each->next;
    return each;
}

static void damage(void) {
    stray = filled(&plain_type, 2, 40, 1);
    say("stray", stray);
    last_of(stray, 1)->next = NOWHERE;
    truth_broken(1, "bad-pointer");
    rho = filled(&plain_type, 2, 40, 1);
    say("rho", rho);
    last_of(rho, 2)->next = TABLE(rho, 0)[2];
    truth_broken(2, "cycle");
    miscounted = filled(&plain_type, 2, 4, 1);
    USED(miscounted, 0) = 5;
    say("miscounted", miscounted);
    truth_problem("table-count");
}

static void sets(void) {
#if REDIS >= 72
    set_type.no_value = set_type.keys_are_odd = set_of_even_type.no_value = 1;
    set = filled(&set_type, 11, MANY, 1);
    say("set", set);
    growing_set = filled(&set_type, 9, MANY, 1);
    rehash(growing_set, 12, 100);
    say("growing_set", growing_set);
    even_set = filled(&set_of_even_type, 9, MANY, 0);
    say("even_set", even_set);
#endif
}

int main(void) {
    empty = create(&plain_type, -1);
    one = filled(&plain_type, 2, 1, 1);
    many = filled(&plain_type, 12, MANY, 1);
    growing = filled(&plain_type, 10, MANY, 1);
    rehash(growing, 12, 300);
    shrinking = filled(&plain_type, 8, 40, 0);
    rehash(shrinking, 6, 255);
    say("empty", empty);
    say("one", one);
    say("many", many);
    say("growing", growing);
    say("shrinking", shrinking);
    sets();
    damage();
    truth_park();
}
