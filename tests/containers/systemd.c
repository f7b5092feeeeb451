/* systemd's hash tables, made by its own shared library, which exports them to its own programs.
 *
 * SYSTEMD TRUTH LIBRARY: writes size, buckets and the keys in the order of the library's iterator to TRUTH.
 * The declarations are those of src/basic/hashmap.h (v218 to v257), as far as they are used.
 */

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Hashmap Hashmap;
typedef struct OrderedHashmap OrderedHashmap;
typedef struct Set Set;

struct iterator {
  const void *next_key;
  unsigned index;
};

struct hash_ops {
  void (*hash)(const void *, void *);
  int (*compare)(const void *, const void *);
  void (*free_key)(void *), (*free_value)(void *);
};

Hashmap *map_empty, *map_one, *map_direct, *map_many, *map_removed, *map_same, *map_overflow, *garbage_map;
OrderedHashmap *ordered_empty, *ordered_one, *ordered_many;
Set *set_empty, *set_one, *set_direct, *set_many;
static unsigned char garbage[128];

static void *(*new_map)(const struct hash_ops *), *(*new_ordered)(const struct hash_ops *);
static void *(*new_set)(const struct hash_ops *);
static int (*put_map)(void *, const void *, void *), (*put_set)(void *, const void *);
static void *(*drop)(void *, const void *);
static unsigned (*size_of)(void *), (*buckets_of)(void *);
static bool (*iterate)(void *, struct iterator *, void **, const void **);

static void *library;
static FILE *out;
static const char *between = "";

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "no %s\n", name);
    exit(77);
  }
  return found;
}

static void say(const char *name, void *table) {
  struct iterator at = {NULL, UINT_MAX - 1};
  const void *key;
  fprintf(out, "%s\n  \"%s\": {\"size\": %u, \"buckets\": %u, \"keys\": [", between, name, size_of(table), buckets_of(table));
  between = ",";
  for (int first = 1; iterate(table, &at, NULL, &key); first = 0)
    fprintf(out, "%s%lu", first ? "" : ", ", (unsigned long)(uintptr_t)key);
  fprintf(out, "]}");
}

static void *number(unsigned long value) { return (void *)(uintptr_t)value; }

/* Adds nothing to the hash, so all are alike. */
static void hash_nothing(const void *key, void *state) { (void)key, (void)state; }
static int compare(const void *one, const void *other) { return one < other ? -1 : one > other; }
static const struct hash_ops same = {hash_nothing, compare, NULL, NULL};

static void fill_map(void *map, int from, int until) {
  for (int key = from; key < until; key++) put_map(map, number(key), number(key * 2));
}

static void fill(void) {
  map_empty = new_map(NULL), map_one = new_map(NULL), map_direct = new_map(NULL), map_many = new_map(NULL);
  map_removed = new_map(NULL), map_same = new_map(&same), map_overflow = new_map(&same);
  ordered_empty = new_ordered(NULL), ordered_one = new_ordered(NULL), ordered_many = new_ordered(NULL);
  set_empty = new_set(NULL), set_one = new_set(NULL), set_direct = new_set(NULL), set_many = new_set(NULL);
  fill_map(map_one, 5, 6);
  fill_map(map_direct, 5, 7);
  fill_map(map_many, 1, 1001);
  fill_map(map_removed, 1, 1001);
  for (int key = 1; key < 1001; key += 3) drop(map_removed, number(key));
  fill_map(map_same, 1, 101);
  fill_map(map_overflow, 1, 401);
  fill_map(ordered_one, 9, 10);
  fill_map(ordered_many, 1, 1001);
  put_set(set_one, number(3));
  for (int key = 1; key < 4; key++) put_set(set_direct, number(key));
  for (int key = 1; key < 1001; key++) put_set(set_many, number(key * 4096));
  memset(garbage, 0xa5, sizeof garbage);
  garbage_map = (Hashmap *)garbage;
}

void interesting(void) { __asm__ volatile(""); }

int main(int count, char **arguments) {
  library = count > 2 ? dlopen(arguments[2], RTLD_NOW) : NULL;
  if (!library) return 77;
  *(void **)&new_map = find("_hashmap_new");
  *(void **)&new_ordered = find("_ordered_hashmap_new");
  *(void **)&new_set = find("_set_new");
  *(void **)&put_map = find("hashmap_put");
  *(void **)&put_set = find("set_put");
  *(void **)&drop = find("_hashmap_remove");
  *(void **)&size_of = find("_hashmap_size");
  *(void **)&buckets_of = find("_hashmap_buckets");
  *(void **)&iterate = find("_hashmap_iterate");
  fill();
  out = fopen(arguments[1], "w");
  fprintf(out, "{");
  say("map_empty", map_empty);
  say("map_one", map_one);
  say("map_direct", map_direct);
  say("map_many", map_many);
  say("map_removed", map_removed);
  say("map_same", map_same);
  say("map_overflow", map_overflow);
  say("ordered_empty", ordered_empty);
  say("ordered_one", ordered_one);
  say("ordered_many", ordered_many);
  say("set_empty", set_empty);
  say("set_one", set_one);
  say("set_direct", set_direct);
  say("set_many", set_many);
  fprintf(out, "\n}\n");
  fclose(out);
  interesting();
  _Exit(0);
}
