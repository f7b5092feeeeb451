/* klib's khash, from the header in Debian's libhts-dev, or with -DMODEL a model of it.
 *
 * Writes size, buckets and [slot, key] of every entry, by khash's own macros, as JSON to the file given.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MODEL
#undef MODEL
#include "khash_model.h"
#else
#include <htslib/khash.h>
#endif

KHASH_MAP_INIT_INT(prices, int)
KHASH_MAP_INIT_INT64(orders, char)
KHASH_SET_INIT_STR(names)

khash_t(prices) *prices_empty, *prices_one, *prices_many, *prices_removed, *prices_weak, *garbage_prices;
khash_t(prices) damaged_prices, huge_prices;
khash_t(orders) *orders_many;
khash_t(names) *names_many;
static unsigned char garbage[64];

static FILE *out;
static const char *between = "";

#define SAY(table)                                                                                       \
  do {                                                                                                   \
    const char *comma = "";                                                                              \
    fprintf(out, "%s\n  \"%s\": {\"size\": %u, \"buckets\": %u, \"slots\": [", between, #table,          \
            (unsigned)kh_size(table), (unsigned)kh_n_buckets(table));                                    \
    for (khint_t at = kh_begin(table); at != kh_end(table); at++)                                        \
      if (kh_exist(table, at)) {                                                                         \
        fprintf(out, "%s[%u, %lu]", comma, (unsigned)at, (unsigned long)(uintptr_t)kh_key(table, at));   \
        comma = ", ";                                                                                    \
      }                                                                                                  \
    fprintf(out, "]}");                                                                                  \
    between = ",";                                                                                       \
  } while (0)

static void fill(void) {
  int there;
  prices_empty = kh_init(prices), prices_one = kh_init(prices), prices_many = kh_init(prices);
  prices_removed = kh_init(prices), prices_weak = kh_init(prices);
  orders_many = kh_init(orders);
  names_many = kh_init(names);
  kh_put(prices, prices_one, 17, &there);
  for (int number = 0; number < 1000; number++) {
    char text[32];
    snprintf(text, sizeof text, "name %d", number);
    kh_put(prices, prices_many, number * 37, &there);
    kh_put(prices, prices_removed, number * 5, &there);
    if (number < 100) kh_put(prices, prices_weak, number * 1024, &there);
    kh_put(orders, orders_many, (uint64_t)number << 35 | number, &there);
    kh_put(names, names_many, strdup(text), &there);
  }
  for (int number = 0; number < 1000; number += 3)
    kh_del(prices, prices_removed, kh_get(prices, prices_removed, number * 5));
  damaged_prices = huge_prices = *prices_many;
  damaged_prices.flags = (void *)(uintptr_t)0xdead0000;
  huge_prices.n_buckets = 1u << 31;
  memset(garbage, 0xa5, sizeof garbage);
  garbage_prices = (khash_t(prices) *)garbage;
}

void interesting(void) { __asm__ volatile(""); }

int main(int count, char **arguments) {
  (void)count;
  fill();
  out = fopen(arguments[1], "w");
  fprintf(out, "{");
  SAY(prices_empty);
  SAY(prices_one);
  SAY(prices_many);
  SAY(prices_removed);
  SAY(prices_weak);
  SAY(orders_many);
  SAY(names_many);
  fprintf(out, "\n}\n");
  fclose(out);
  interesting();
  _Exit(0);
}
