// Locks whose names are not plain: one in an anonymous namespace, one static of a function, and a table's, which locals
// of two threads lead to, and a path from a global too. Built with -O0; it prints READY when all wait.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <unistd.h>

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
    pthread_mutex_t lock;
    size_t size;
    int size_mask;
    struct lruhash_bin *array;
    struct lruhash_entry *lru_start, *lru_end;
    size_t num, space_used, space_max;
};

struct slabhash {
    size_t size;
    uint32_t mask;
    unsigned int shift;
    struct lruhash **array;
};

struct environment {
    struct slabhash *cache;
};

struct server {
    int port;
    struct environment *env;
} *server;

namespace {
pthread_mutex_t hidden_lock = PTHREAD_MUTEX_INITIALIZER;
}

static pthread_mutex_t *own_lock()
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    return &lock;
}

static void *hold(void *)
{
    struct lruhash *table = server->env->cache->array[1];
    pthread_mutex_lock(&table->lock);
    pthread_mutex_lock(&hidden_lock);
    return table;
}

static void *want(void *)
{
    struct lruhash *table = server->env->cache->array[1];
    pthread_mutex_lock(&table->lock);
    return table;
}

static void *want_own(void *)
{
    pthread_mutex_lock(own_lock());
    return nullptr;
}

int main()
{
    server = new struct server();
    server->env = new environment();
    slabhash *cache = server->env->cache = new slabhash();
    cache->size = 2, cache->mask = 1u << 31, cache->shift = 31, cache->array = new lruhash *[2];
    for (int i = 0; i < 2; i++) {
        lruhash *table = cache->array[i] = new lruhash();
        pthread_mutex_init(&table->lock, nullptr);
        table->size = 16, table->size_mask = 15, table->array = new lruhash_bin[16]();
        for (uint32_t at = 0; at < 8; at++) {
            lruhash_entry *entry = new lruhash_entry();
            entry->hash = uint32_t(i) << 31 | at, entry->key = entry;
            entry->overflow_next = table->array[at].overflow_list, table->array[at].overflow_list = entry;
            entry->lru_next = table->lru_start;
            if (table->lru_start)
                table->lru_start->lru_prev = entry;
            else
                table->lru_end = entry;
            table->lru_start = entry, table->num++;
        }
    }
    pthread_mutex_lock(&hidden_lock);
    pthread_mutex_lock(own_lock());
    pthread_t thread;
    void *(*const each[])(void *) = {hold, want, want_own};
    for (auto start : each) {
        pthread_create(&thread, nullptr, start, nullptr);
        usleep(200000);
    }
    puts("READY");
    fflush(stdout);
    abort();
}
