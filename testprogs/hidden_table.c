/* Tables that only local variables of optimised code lead to, in threads that nobody selected.
 *
 * `table`          in thread `walker`: optimised out in `look_up`, which stands at a known entry of a long bin with
 *                  the locks of table and bin held; alive in its caller `serve`
 * `private_group`  in thread `keeper` only, in `keep`
 * `daemon`         a global of this program's, and a function of libc's; as in Unbound, its tables are
 *                  `daemon->env->rrset_cache->table` and `*daemon->env->msg_cache`
 *
 * --entries N      of each (6000). The healthy twin's hashes are fair; otherwise three of four entries of `table` and
 *                  of the rrset_cache have the same stored hash. Built with -O2.
 */
#define daemon libc_daemon /* unistd.h declares it */
#include "truth.h"
#undef daemon
#include "lruhash.h"

#define SAME_HASH 0x2d5a17u
#define ALONE __attribute__((noinline, noclone, noipa))

struct rrset_cache {
    struct slabhash table;
};

struct module_env {
    struct rrset_cache *rrset_cache;
    struct slabhash *msg_cache;
};

struct daemon {
    int port;
    struct module_env *env;
};

struct daemon *daemon;

static size_t entries, position, chain, bin_index;
static struct lruhash_entry *stands_at;
static struct lruhash *hidden;
static void *kept;
static uintptr_t secrets[2]; /* complements, so that nobody finds the tables by their pointers */
static int walker_tid, keeper_tid;
static volatile int past_meeting;

ALONE static void meet_and_hold(void)
{
    meet();
    __atomic_add_fetch(&past_meeting, 1, __ATOMIC_SEQ_CST);
    hold();
}

static void (*volatile wait_here)(void) = meet_and_hold;

/* ---- the walker ---- */

ALONE static void *secret_of(int number) { return (void *)~secrets[number]; }

ALONE static void *look_up(int number, uint32_t hash, size_t skips)
{
    struct lruhash *table = secret_of(number);
    pthread_spin_lock(&table->lock);
    struct lruhash_bin *bin = &table->array[hash & (size_t)table->size_mask];
    pthread_spin_lock(&bin->lock);
    for (struct lruhash_entry *entry = bin->overflow_list; entry; entry = entry->overflow_next)
        if (!skips--) {
            stands_at = entry;
            wait_here();
        }
    return bin->overflow_list;
}

ALONE static size_t serve(int number)
{
    struct lruhash *table = secret_of(number);
    void *found = look_up(number, SAME_HASH, position);
    return table->num + (found != NULL);
}

static void *walk(void *argument)
{
    walker_tid = (int)syscall(SYS_gettid);
    return (void *)serve(*(int *)argument);
}

/* ---- the keeper ---- */

ALONE static size_t keep(int number)
{
    struct slabhash *private_group = secret_of(number);
    wait_here();
    return private_group->size;
}

static void *keep_group(void *argument)
{
    keeper_tid = (int)syscall(SYS_gettid);
    return (void *)keep(*(int *)argument);
}

/* ---- building ---- */

/* The healthy twin has one entry of the hash that is looked up. */
static uint32_t hash_of(size_t i) { return (healthy ? i == entries - 1 : i % 4 != 0) ? SAME_HASH : fair(i); }

static struct slabhash *build_group(uint32_t (*hash)(size_t))
{
    struct slabhash *group = new_group(4, 64);
    for (size_t i = 0; i < entries; i++)
        add(group->array[slab_of(group, hash(i))], new_name(i), hash(i), 1);
    return group;
}

static struct lruhash *build_hidden(void)
{
    struct lruhash *table = new_table(64);
    for (size_t i = 0; i < entries; i++)
        add(table, new_name(i), hash_of(i), 1);
    bin_index = SAME_HASH & (size_t)table->size_mask;
    for (size_t i = 0; i < entries; i++)
        chain += (hash_of(i) & (size_t)table->size_mask) == bin_index;
    return table;
}

static void build_daemon(void)
{
    daemon = malloc(sizeof *daemon);
    daemon->port = 53;
    daemon->env = malloc(sizeof *daemon->env);
    daemon->env->msg_cache = build_group(fair);
    daemon->env->rrset_cache = malloc(sizeof *daemon->env->rrset_cache);
    daemon->env->rrset_cache->table = *build_group(hash_of);
}

static void json_hidden(const char *key, void *address, int tid, const char *function)
{
    json_open(key, '{');
    json_address("address", address);
    json_number("tid", (uintmax_t)tid);
    json_text("function", function);
    json_close('}');
}

static void details(void)
{
    json_hidden("table", hidden, walker_tid, "serve");
    json_hidden("private_group", kept, keeper_tid, "keep");
    json_open("daemon", '{');
    json_address("address", daemon);
    json_address("variable", &daemon);
    json_address("rrset_cache", &daemon->env->rrset_cache->table);
    json_address("msg_cache", daemon->env->msg_cache);
    json_close('}');
    json_number("entries", entries);
    json_number("bins", hidden->size);
    json_open("walker", '{');
    json_text("function", "look_up");
    json_address("lock", (void *)&hidden->lock);
    json_address("entry", stands_at);
    json_number("bin", bin_index);
    json_number("position", position);
    json_number("chain", chain);
    json_close('}');
    hidden = kept = NULL;
}

/* Wait until a thread sleeps. */
static void await(int tid)
{
    char path[64], state[512], *after;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    do {
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, state, sizeof state - 1);
        close(file);
        state[length > 0 ? length : 0] = 0;
        after = strrchr(state, ')');
        sched_yield();
    } while (past_meeting < 2 || !after || after[2] != 'S');
}

int main(int argc, char **argv)
{
    static int numbers[2] = {0, 1};
    truth_begin(argc, argv, "hidden_table", 1);
    entries = number_option("entries", 6000);
    build_daemon();
    hidden = build_hidden();
    kept = build_group(fair);
    position = chain / 2;
    secrets[0] = ~(uintptr_t)hidden;
    secrets[1] = ~(uintptr_t)kept;
    expect(3);
    spawn("walker", walk, &numbers[0]);
    spawn("keeper", keep_group, &numbers[1]);
    meet();
    await(walker_tid);
    await(keeper_tid);
    truth_end(details);
}
