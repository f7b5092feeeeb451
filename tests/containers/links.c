/* Lists whose links point to links, the elements around them: Linux' list_head, hlist and their kin, nginx'
   queue. Models of our own; the layouts are those that the shapes name as their source. */
#include <stddef.h>

#include "truth.h"

#define MANY 500
#define BINS 16
#define NOWHERE ((void *)0x7f0000000008)
#define POISON ((void *)0xdead000000000100)
#define AROUND(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

struct list_head {
    struct list_head *next, *prev;
};
struct hlist_node {
    struct hlist_node *next, **pprev;
};
struct hlist_head {
    struct hlist_node *first;
};
struct hlist_nulls_node {
    struct hlist_nulls_node *next, **pprev;
};
struct hlist_nulls_head {
    struct hlist_nulls_node *first;
};
struct hlist_bl_node {
    struct hlist_bl_node *next, **pprev;
};
struct hlist_bl_head {
    struct hlist_bl_node *first;
};
struct llist_node {
    struct llist_node *next;
};
struct llist_head {
    struct llist_node *first;
};
typedef struct ngx_queue_s ngx_queue_t;
struct ngx_queue_s {
    ngx_queue_t *prev, *next;
};

struct task {
    long number;
    struct list_head node;
    struct hlist_node hashed;
    struct hlist_nulls_node nulls;
    struct hlist_bl_node locked;
    struct llist_node waiting;
    ngx_queue_t queued;
};

struct list_head list_empty, list_one, list_many, list_prev, list_poison, list_rho, list_stray, list_zero;
struct hlist_head hlist_empty, hlist_one, hlist_many, hlist_prev, hlist_self, hlist_poison;
struct hlist_head hash_table[BINS];
struct hlist_nulls_head nulls_empty, nulls_many;
struct hlist_bl_head bl_empty, bl_locked;
struct llist_head llist_many;
ngx_queue_t ngx_empty, ngx_many, ngx_prev;

static struct task *fresh(long number) {
    struct task *made = calloc(1, sizeof *made);
    made->number = number;
    return made;
}

static void list_add_tail(struct list_head *link, struct list_head *head) {
    link->next = head, link->prev = head->prev;
    head->prev->next = link, head->prev = link;
}

static void hlist_push(struct hlist_node *link, struct hlist_head *head) {
    link->next = head->first, link->pprev = &head->first;
    if (link->next)
        link->next->pprev = &link->next;
    head->first = link;
}

static void nulls_push(struct hlist_nulls_node *link, struct hlist_nulls_head *head) {
    link->next = head->first, link->pprev = &head->first;
    if (!((uintptr_t)link->next & 1))
        link->next->pprev = &link->next;
    head->first = link;
}

/* The lowest bit of the head is its lock: it stays, and no pointer back to the head tells of it. */
static void bl_push(struct hlist_bl_node *link, struct hlist_bl_head *head) {
    uintptr_t lock = (uintptr_t)head->first & 1;
    link->next = (void *)((uintptr_t)head->first - lock), link->pprev = &head->first;
    if (link->next)
        link->next->pprev = &link->next;
    head->first = (void *)((uintptr_t)link | lock);
}

static void queue_push(ngx_queue_t *link, ngx_queue_t *head) {
    link->prev = head->prev, link->next = head;
    head->prev->next = link, head->prev = link;
}

static void say_elements(const char *name, const char *shape, const char *member) {
    char options[64];
    snprintf(options, sizeof options, "--container 'struct task' %s", member);
    truth_case(name, shape, name, options, 0, -1);
}

static void fill_list(struct list_head *head, const char *name, long count, const char *broken) {
    head->next = head->prev = head;
    say_elements(name, "linux-list", "node");
    for (long number = 0; number < count; number++) {
        struct task *made = fresh(number);
        list_add_tail(&made->node, head);
        truth_node(0, made);
    }
    if (broken)
        truth_broken(0, broken);
}

static void fill_hlist(struct hlist_head *head, const char *name, long count, const char *broken) {
    for (long number = 0; number < count; number++)
        hlist_push(&fresh(number)->hashed, head);
    say_elements(name, "linux-hlist", "hashed");
    for (struct hlist_node *each = head->first; each; each = each->next)
        truth_node(0, AROUND(each, struct task, hashed));
    if (broken)
        truth_broken(0, broken);
}

static void lists(void) {
    fill_list(&list_empty, "list_empty", 0, NULL);
    fill_list(&list_one, "list_one", 1, NULL);
    fill_list(&list_many, "list_many", MANY, NULL);
    fill_list(&list_prev, "list_prev", 10, NULL);
    list_prev.next->next->next->prev = list_prev.next;
    truth_problem("list-prev");
    fill_list(&list_poison, "list_poison", 10, "forbidden");
    list_poison.prev->next = POISON;
    fill_list(&list_rho, "list_rho", 10, "cycle");
    list_rho.prev->next = list_rho.next->next;
    fill_list(&list_stray, "list_stray", 10, "bad-pointer");
    list_stray.prev->next = NOWHERE;
    say_elements("list_zero", "linux-list", "node"); /* never initialised */
}

static void hlists(void) {
    fill_hlist(&hlist_empty, "hlist_empty", 0, NULL);
    fill_hlist(&hlist_one, "hlist_one", 1, NULL);
    fill_hlist(&hlist_many, "hlist_many", MANY, NULL);
    fill_hlist(&hlist_prev, "hlist_prev", 10, NULL);
    hlist_prev.first->next->pprev = NOWHERE;
    truth_problem("list-prev");
    fill_hlist(&hlist_self, "hlist_self", 1, "cycle");
    hlist_self.first->next = hlist_self.first;
    fill_hlist(&hlist_poison, "hlist_poison", 1, "forbidden");
    hlist_poison.first->next = POISON;
}

static void table(void) {
    for (long number = 0; number < MANY; number++)
        hlist_push(&fresh(number)->hashed, &hash_table[number * number % BINS]);
    truth_case("hash_table", "options", "hash_table", "--container 'struct task' hashed", BINS, -1);
    for (int bin = 0; bin < BINS; bin++)
        for (struct hlist_node *each = hash_table[bin].first; each; each = each->next)
            truth_node(bin, AROUND(each, struct task, hashed));
}

static void kin(void) {
    nulls_empty.first = (void *)(uintptr_t)(2 * 7 + 1);
    nulls_many.first = (void *)(uintptr_t)(2 * 9 + 1);
    bl_locked.first = (void *)(uintptr_t)1;
    ngx_empty.prev = ngx_empty.next = &ngx_empty;
    ngx_many.prev = ngx_many.next = &ngx_many;
    ngx_prev.prev = ngx_prev.next = &ngx_prev;
    for (long number = 0; number < MANY; number++) {
        struct task *made = fresh(number);
        nulls_push(&made->nulls, &nulls_many);
        bl_push(&made->locked, &bl_locked);
        queue_push(&made->queued, &ngx_many);
        made->waiting.next = llist_many.first;
        llist_many.first = &made->waiting;
    }
    for (long number = 0; number < 5; number++)
        queue_push(&fresh(number)->queued, &ngx_prev);
    ngx_prev.next->prev = NOWHERE;
}

static void say_kin(void) {
    say_elements("nulls_empty", "linux-hlist-nulls", "nulls");
    say_elements("nulls_many", "linux-hlist-nulls", "nulls");
    for (struct hlist_nulls_node *each = nulls_many.first; !((uintptr_t)each & 1); each = each->next)
        truth_node(0, AROUND(each, struct task, nulls));
    say_elements("bl_empty", "linux-hlist-bl", "locked");
    say_elements("bl_locked", "linux-hlist-bl", "locked");
    struct hlist_bl_node *first = (void *)((uintptr_t)bl_locked.first & ~(uintptr_t)1);
    for (struct hlist_bl_node *each = first; each; each = each->next)
        truth_node(0, AROUND(each, struct task, locked));
    say_elements("llist_many", "linux-llist", "waiting");
    for (struct llist_node *each = llist_many.first; each; each = each->next)
        truth_node(0, AROUND(each, struct task, waiting));
    say_elements("ngx_empty", "nginx-queue", "queued");
    say_elements("ngx_many", "nginx-queue", "queued");
    for (ngx_queue_t *each = ngx_many.next; each != &ngx_many; each = each->next)
        truth_node(0, AROUND(each, struct task, queued));
    say_elements("ngx_prev", "nginx-queue", "queued");
    for (ngx_queue_t *each = ngx_prev.next; each != &ngx_prev; each = each->next)
        truth_node(0, AROUND(each, struct task, queued));
    truth_problem("list-prev");
}

int main(void) {
    lists();
    hlists();
    table();
    kin();
    say_kin();
    truth_park();
}
