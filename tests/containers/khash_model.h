/* A model of klib's khash 0.2.8 for machines without its header: the same structure, the same places of entries.

   Open addressing over a power of two of slots: a lookup goes 1, 2, 3 … slots on; of each slot's two flag bits the
   upper says "never used", the lower "removed". Strings hash by h * 31 + c, 32-bit integers to themselves. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t khint_t;

#define khash_t(name) kh_##name##_t
#define kh_init(name) calloc(1, sizeof(khash_t(name)))
#define kh_put(name, table, key, there) model_put_##name(table, key, there)
#define kh_get(name, table, key) model_get_##name(table, key)
#define kh_del(name, table, slot) \
    ((table)->flags[(slot) / 16] |= 1u << (slot) % 16 * 2, (table)->size--)
#define kh_size(table) ((table)->size)
#define kh_n_buckets(table) ((table)->n_buckets)
#define kh_begin(table) ((khint_t)0)
#define kh_end(table) ((table)->n_buckets)
#define kh_key(table, slot) ((table)->keys[slot])
#define kh_exist(table, slot) (!model_flags((table)->flags, slot))

static inline unsigned model_flags(const uint32_t *flags, khint_t slot) { return flags[slot / 16] >> slot % 16 * 2 & 3; }

static inline khint_t model_hash_string(const char *text) {
    khint_t hash = 0;
    while (*text)
        hash = hash * 31 + (khint_t)*text++;
    return hash;
}

#define MODEL(name, key_type, value_type, hash, equal)                                                      \
    typedef struct kh_##name##_s {                                                                          \
        khint_t n_buckets, size, n_occupied, upper_bound;                                                   \
        uint32_t *flags;                                                                                    \
        key_type *keys;                                                                                     \
        value_type *vals;                                                                                   \
    } kh_##name##_t;                                                                                        \
    /* The key's slot, or the first never used one on the way to it. */                                    \
    static khint_t model_find_##name(const kh_##name##_t *table, key_type key) {                            \
        khint_t slot = hash(key) & (table->n_buckets - 1), step = 0;                                        \
        while (model_flags(table->flags, slot) < 2 &&                                                       \
               (model_flags(table->flags, slot) || !equal(table->keys[slot], key)))                         \
            slot = (slot + ++step) & (table->n_buckets - 1);                                                \
        return slot;                                                                                        \
    }                                                                                                       \
    static __attribute__((unused)) khint_t model_get_##name(const kh_##name##_t *table, key_type key) {     \
        khint_t slot = table->n_buckets ? model_find_##name(table, key) : 0;                                \
        return table->n_buckets && !model_flags(table->flags, slot) ? slot : table->n_buckets;              \
    }                                                                                                       \
    static void model_place_##name(kh_##name##_t *table, key_type key) {                                    \
        khint_t slot = model_find_##name(table, key);                                                       \
        if (!model_flags(table->flags, slot))                                                               \
            return;                                                                                         \
        table->flags[slot / 16] &= ~(3u << slot % 16 * 2);                                                  \
        table->keys[slot] = key;                                                                            \
        table->size++, table->n_occupied++;                                                                 \
    }                                                                                                       \
    static void model_grow_##name(kh_##name##_t *table) {                                                   \
        kh_##name##_t old = *table;                                                                         \
        khint_t slots = table->n_buckets = old.n_buckets ? old.n_buckets * 2 : 4;                           \
        table->size = table->n_occupied = 0;                                                                \
        table->upper_bound = (khint_t)(slots * 0.77 + 0.5);                                                 \
        table->flags = memset(malloc(slots / 4 + 4), 0xaa, slots / 4 + 4);                                  \
        table->keys = calloc(slots, sizeof *table->keys);                                                   \
        for (khint_t slot = 0; slot < old.n_buckets; slot++)                                                \
            if (!model_flags(old.flags, slot))                                                              \
                model_place_##name(table, old.keys[slot]);                                                  \
        free(old.flags), free(old.keys);                                                                    \
    }                                                                                                       \
    static khint_t model_put_##name(kh_##name##_t *table, key_type key, int *there) {                       \
        if (table->n_occupied >= table->upper_bound)                                                        \
            model_grow_##name(table);                                                                       \
        *there = model_get_##name(table, key) == table->n_buckets;                                          \
        model_place_##name(table, key);                                                                     \
        return model_get_##name(table, key);                                                                \
    }

#define MODEL_SAME(one, other) ((one) == (other))
#define MODEL_HASH_INT(key) ((khint_t)(key))
#define MODEL_HASH_INT64(key) ((khint_t)((key) >> 33 ^ (key) ^ (key) << 11))
#define MODEL_SAME_STRING(one, other) (strcmp(one, other) == 0)

#define KHASH_MAP_INIT_INT(name, type) MODEL(name, uint32_t, type, MODEL_HASH_INT, MODEL_SAME)
#define KHASH_MAP_INIT_INT64(name, type) MODEL(name, uint64_t, type, MODEL_HASH_INT64, MODEL_SAME)
#define KHASH_SET_INIT_STR(name) MODEL(name, const char *, char, model_hash_string, MODEL_SAME_STRING)
