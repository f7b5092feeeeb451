/* Lists and hash tables of GLib, each with what its own interface says of it, written as JSON to the file given. */

#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

GList *list_empty, *list_one, *list_many;
GSList *slist_empty, *slist_one, *slist_many;
GQueue queue_empty = G_QUEUE_INIT, *queue_many;
GHashTable *table_empty, *table_one, *small_many, *big_many, *string_many, *set_many, *removed_many, *weak_many;
GList *damaged_list;
GSList *cyclic_slist;
GHashTable *garbage_table, *damaged_table;
static unsigned char garbage[256], copy[256];

static FILE *out;
static const char *between = "";

static void begin(const char *name, unsigned size) {
  fprintf(out, "%s\n  \"%s\": {\"size\": %u", between, name, size);
  between = ",";
}

static void say_list(const char *name, GList *list) {
  begin(name, g_list_length(list));
  fprintf(out, ", \"elements\": [");
  for (GList *at = list; at; at = at->next) fprintf(out, "%s\"%p\"", at == list ? "" : ", ", (void *)at);
  fprintf(out, "]}");
}

static void say_slist(const char *name, GSList *list) {
  begin(name, g_slist_length(list));
  fprintf(out, ", \"elements\": [");
  for (GSList *at = list; at; at = at->next) fprintf(out, "%s\"%p\"", at == list ? "" : ", ", (void *)at);
  fprintf(out, "]}");
}

/* keys and their hashes, in the order of the slots, which is that of the iterator */
static void say_table(const char *name, GHashTable *table, GHashFunc hash) {
  GHashTableIter iter;
  gpointer key, value;
  begin(name, g_hash_table_size(table));
  fprintf(out, ", \"keys\": [");
  g_hash_table_iter_init(&iter, table);
  for (int first = 1; g_hash_table_iter_next(&iter, &key, &value); first = 0)
    fprintf(out, "%s[%lu, %u]", first ? "" : ", ", (unsigned long)(gsize)key, hash(key));
  fprintf(out, "]}");
}

static guint weak_hash(gconstpointer key) { return GPOINTER_TO_UINT(key) % 3 + 5; }

static void fill(void) {
  table_empty = g_hash_table_new(NULL, NULL);
  table_one = g_hash_table_new(g_direct_hash, NULL);
  small_many = g_hash_table_new(g_direct_hash, NULL);
  big_many = g_hash_table_new(g_direct_hash, NULL);
  string_many = g_hash_table_new(g_str_hash, g_str_equal);
  set_many = g_hash_table_new(g_str_hash, g_str_equal);
  removed_many = g_hash_table_new(g_direct_hash, NULL);
  weak_many = g_hash_table_new(weak_hash, NULL);
  queue_many = g_queue_new();
  list_one = g_list_append(NULL, "one");
  slist_one = g_slist_append(NULL, "one");
  g_hash_table_insert(table_one, GINT_TO_POINTER(5), "five");
  for (int number = 0; number < 2000; number++) {
    char *text = g_strdup_printf("key %d", number);
    list_many = g_list_prepend(list_many, text);
    slist_many = g_slist_prepend(slist_many, text);
    g_queue_push_tail(queue_many, text);
    g_hash_table_insert(small_many, GINT_TO_POINTER(number * 3), GINT_TO_POINTER(number));
    g_hash_table_insert(big_many, (gpointer)((gsize)number << 33 | number), text);
    g_hash_table_insert(string_many, text, GINT_TO_POINTER(number));
    g_hash_table_add(set_many, text);
    g_hash_table_insert(removed_many, GINT_TO_POINTER(number * 64), text);
    if (number < 200) g_hash_table_insert(weak_many, GINT_TO_POINTER(number + 1), text);
  }
  for (int number = 0; number < 2000; number += 4) g_hash_table_remove(removed_many, GINT_TO_POINTER(number * 64));
}

static void damage(void) {
  GSList *last;
  for (int number = 0; number < 100; number++) {
    damaged_list = g_list_prepend(damaged_list, GINT_TO_POINTER(number));
    cyclic_slist = g_slist_prepend(cyclic_slist, GINT_TO_POINTER(number));
  }
  g_list_nth(damaged_list, 49)->next = (GList *)0xdead0000UL;
  g_list_nth(damaged_list, 20)->prev = damaged_list;
  last = g_slist_last(cyclic_slist);
  last->next = g_slist_nth(cyclic_slist, 30);
  memset(garbage, 0xa5, sizeof garbage);
  /* The pointer to the hashes is the word after that to the keys. */
  memcpy(copy, string_many, 64);
  *(gsize *)(copy + (GLIB_CHECK_VERSION(2, 87, 0) ? 32 : 40)) = 0xdead0000;
  damaged_table = (GHashTable *)copy;
  garbage_table = (GHashTable *)garbage;
}

void interesting(void) { __asm__ volatile(""); }

int main(int count, char **arguments) {
  (void)count;
  fill();
  out = fopen(arguments[1], "w");
  fprintf(out, "{");
  say_list("list_empty", list_empty);
  say_list("list_one", list_one);
  say_list("list_many", list_many);
  say_list("queue_empty", queue_empty.head);
  say_list("queue_many", queue_many->head);
  say_slist("slist_empty", slist_empty);
  say_slist("slist_one", slist_one);
  say_slist("slist_many", slist_many);
  say_table("table_empty", table_empty, g_direct_hash);
  say_table("table_one", table_one, g_direct_hash);
  say_table("small_many", small_many, g_direct_hash);
  say_table("big_many", big_many, g_direct_hash);
  say_table("string_many", string_many, g_str_hash);
  say_table("set_many", set_many, g_str_hash);
  say_table("removed_many", removed_many, g_direct_hash);
  say_table("weak_many", weak_many, weak_hash);
  fprintf(out, "\n}\n");
  fclose(out);
  damage();
  interesting();
  _Exit(0);
}
