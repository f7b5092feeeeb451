/* Chains for the $gx_ functions and gx breakpoints: sound and broken ones, and a table that is filled by two threads.
 *
 * It counts itself what a breakpoint should meet, and prints that as one line of JSON at its end. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct node {
    uint32_t hash;
    struct node *next;
    struct {
        struct node *other;
    };
    uintptr_t as_number;
};

struct list_head {
    struct list_head *next, *prev;
};

struct item {
    long number;
    struct list_head link;
};

struct node *sound, *self_loop, *rho, *dangling, *cut, *wild = (struct node *)0x10, *misled;
struct item *items, *circle;
struct list_head ring, empty_ring;
uint32_t narrow = 0xfffffff0u;
int negative = -16;

int main(void);

static struct node *chain(int count)
{
    struct node *first = NULL;
    for (int i = 0; i < count; i++) {
        struct node *node = calloc(1, sizeof *node);
        node->next = node->other = first;
        node->as_number = (uintptr_t)first;
        first = node;
    }
    return first;
}

static struct node *last_of(struct node *node)
{
    while (node->next)
        node = node->next;
    return node;
}

static struct node *unmapped(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    return (struct node *)page;
}

static void add(struct list_head *head, struct list_head *link)
{
    link->next = head->next;
    link->prev = head;
    head->next->prev = link;
    head->next = link;
}

static void build(void)
{
    sound = chain(40);
    self_loop = chain(1);
    self_loop->next = self_loop;
    rho = chain(30);
    last_of(rho)->next = rho->next->next->next;
    dangling = chain(25);
    last_of(dangling)->next = unmapped();
    cut = unmapped();
    misled = (struct node *)main; /* garbage that can be read */
    ring.next = ring.prev = &ring;
    empty_ring.next = empty_ring.prev = &empty_ring;
    items = calloc(7, sizeof *items);
    for (int i = 0; i < 7; i++)
        add(&ring, &items[i].link);
    circle = calloc(3, sizeof *circle);
    for (int i = 0; i < 3; i++)
        circle[i].link.next = i < 2 ? &circle[i + 1].link : NULL;
}

static volatile int visits;

__attribute__((noinline)) void visit(struct node *head, struct node **where)
{
    visits += head != NULL || where != NULL; /* visited */
}

/* ---- a table, and two threads ---- */

#define BINS 8
static struct node *bins[BINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inserted, longer, stale;

__attribute__((noinline)) uint32_t finish_hash(uint32_t value)
{
    __asm__ volatile("");
    return value; /* computed */
}

__attribute__((noinline)) void insert(struct node *entry, int bin)
{
    entry->next = bins[bin];
    bins[bin] = entry; /* linked */
    inserted++; /* inserted */
}

static int length(const struct node *node)
{
    int count = 0;
    for (; node; node = node->next)
        count++;
    return count;
}

static void *work(void *seed)
{
    uint32_t hash = (uint32_t)(uintptr_t)seed;
    for (int i = 0; i < 60; i++) {
        struct node *entry = calloc(1, sizeof *entry);
        uint32_t fresh = hash * 2654435761u + 12345u;
        pthread_mutex_lock(&lock);
        fresh = finish_hash(fresh);
        entry->hash = i % 10 == 9 ? hash : fresh;
        stale += i % 10 == 9;
        hash = fresh;
        insert(entry, (int)(entry->hash % BINS));
        longer += length(bins[entry->hash % BINS]) > 8;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    build();
    struct node *heads[] = {sound, NULL, self_loop, rho, dangling, cut, wild, misled, sound->next};
    int count = (int)(sizeof heads / sizeof *heads);
    for (int i = 0; i < count; i++)
        visit(heads[i], i % 2 ? &heads[i] : (struct node **)0x18);
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("{\"visits\": %d, \"inserted\": %d, \"longer\": %d, \"stale\": %d}\n", count, inserted, longer, stale);
    return 0;
}
