/* Tables of the real uthash: empty, one entry, many, integer and string keys, an element in two tables by two
   handles, and damaged ones. */
#include <stddef.h>
#include <uthash.h>

#include "truth.h"

#define MANY 5000
#define NOWHERE ((void *)0x7f0000000008)

struct user {
    char padding[24];
    int id;
    char name[20];
    UT_hash_handle hh;       /* by id */
    UT_hash_handle by_name;
};

struct user *no_users, *one_user, *users, *names, *stray, *rho, *misplaced, *miscounted, *unsigned_users;
struct user *stale, *repeated;

static struct user *fresh(int id) {
    struct user *made = calloc(1, sizeof *made);
    made->id = id;
    snprintf(made->name, sizeof made->name, "user %d", id);
    return made;
}

static void fill(struct user **table, int count) {
    for (int id = 0; id < count; id++) {
        struct user *made = fresh(id);
        HASH_ADD_INT(*table, id, made);
    }
}

/* All bins, by the links that uthash itself follows in a look-up. */
static void say_bins(UT_hash_table *table) {
    for (unsigned bin = 0; bin < table->num_buckets; bin++)
        for (UT_hash_handle *each = table->buckets[bin].hh_head; each; each = each->hh_next)
            truth_node(bin, (char *)each - table->hho);
}

static void say(const char *name, UT_hash_table *table, const char *handle) {
    char expression[64];
    snprintf(expression, sizeof expression, "%s->%s.tbl", name, handle);
    truth_case(name, "uthash", expression, "", table->num_buckets, table->num_items);
    say_bins(table);
}

/* A table of 40 entries to be damaged in its longest bin, whose number it gives. */
static unsigned broken(struct user **table) {
    unsigned worst = 0;
    fill(table, 40);
    UT_hash_bucket *bins = (*table)->hh.tbl->buckets;
    for (unsigned bin = 0; bin < (*table)->hh.tbl->num_buckets; bin++)
        worst = bins[bin].count > bins[worst].count ? bin : worst;
    return worst;
}

static UT_hash_handle *last_of(struct user *table, unsigned bin) {
    UT_hash_handle *each = table->hh.tbl->buckets[bin].hh_head;
    while (each->hh_next)
        each = each->hh_next;
    return each;
}

static void damage(void) {
    unsigned bin = broken(&stray);
    say("stray", stray->hh.tbl, "hh");
    last_of(stray, bin)->hh_next = NOWHERE;
    truth_broken(bin, "bad-pointer");
    bin = broken(&rho);
    say("rho", rho->hh.tbl, "hh");
    last_of(rho, bin)->hh_next = rho->hh.tbl->buckets[bin].hh_head;
    truth_broken(bin, "cycle");
    bin = broken(&misplaced); /* its key has changed since */
    misplaced->hh.tbl->buckets[bin].hh_head->hashv ^= 1;
    say("misplaced", misplaced->hh.tbl, "hh");
    truth_problem("misplaced-entry");
    bin = broken(&miscounted);
    miscounted->hh.tbl->buckets[bin].count += 2;
    miscounted->hh.tbl->num_items += 3;
    say("miscounted", miscounted->hh.tbl, "hh");
    truth_problem("chain-count");
    truth_problem("table-count");
    broken(&unsigned_users); /* no table of uthash, by its signature */
    unsigned_users->hh.tbl->signature = 0;
}

/* Many names with the hash of one of them, and one number many times: uthash asks nobody. */
static void misuse(void) {
    unsigned hash;
    HASH_VALUE("user 0", 6, hash);
    for (int id = 0; id < 200; id++) {
        struct user *made = fresh(id);
        HASH_ADD_KEYPTR_BYHASHVALUE(by_name, stale, made->name, strlen(made->name), hash, made);
        made = fresh(7);
        HASH_ADD_INT(repeated, id, made);
    }
    say("stale", stale->by_name.tbl, "by_name");
    say("repeated", repeated->hh.tbl, "hh");
}

int main(void) {
    fill(&one_user, 1);
    fill(&users, MANY);
    for (struct user *each = users; each; each = each->hh.next)
        if (each->id % 3 == 0)
            HASH_ADD_KEYPTR(by_name, names, each->name, strlen(each->name), each);
    struct user *leaving, *next;
    HASH_ITER(hh, users, leaving, next) {
        if (leaving->id % 10 == 7 && leaving->id % 3)
            HASH_DEL(users, leaving);
    }
    say("one_user", one_user->hh.tbl, "hh");
    say("users", users->hh.tbl, "hh");
    say("names", names->by_name.tbl, "by_name");
    misuse();
    damage();
    truth_park();
}
