/* All lists of <sys/queue.h>: empty, one element, many, an entry on two lists, and damaged ones. */
#include <sys/queue.h>

#include "truth.h"

#define MANY 1000
#define NOWHERE ((void *)0x7f0000000008) /* mapped in no process of ours */

struct item {
    int number;
    SLIST_ENTRY(item) slink;
    LIST_ENTRY(item) link;
    struct {
        STAILQ_ENTRY(item) inner;
    } deep;
    SIMPLEQ_ENTRY(item) simple;
    TAILQ_ENTRY(item) queue;
    CIRCLEQ_ENTRY(item) ring;
};

struct twice { /* on two tail queues */
    int number;
    TAILQ_ENTRY(twice) by_age;
    TAILQ_ENTRY(twice) by_name;
};

SLIST_HEAD(slist, item) slist_empty, slist_one, slist_many, slist_rho, slist_stray;
LIST_HEAD(list, item) list_empty, list_one, list_many, list_self, list_prev;
STAILQ_HEAD(stailq, item) stailq_empty, stailq_one, stailq_many, stailq_tail;
SIMPLEQ_HEAD(simpleq, item) simpleq_empty, simpleq_one, simpleq_many;
TAILQ_HEAD(tailq, item) tailq_empty, tailq_one, tailq_many, tailq_prev, tailq_tail, tailq_stray;
CIRCLEQ_HEAD(circleq, item) circleq_empty, circleq_one, circleq_many, circleq_cut, circleq_rho;
struct circleq circleq_row[4]; /* as bins of a table; the third is empty */
TAILQ_HEAD(, twice) nameless; /* its type has no name either */
struct tailq *tailq_pointer = &tailq_many;

static struct item *fresh(int number) {
    struct item *made = calloc(1, sizeof *made);
    made->number = number;
    return made;
}

/* Fill a list of each kind, elements in the order of their numbers. */
static void fill(int count, struct slist *s, struct list *l, struct stailq *st, struct simpleq *si, struct tailq *t,
                 struct circleq *c) {
    SLIST_INIT(s);
    LIST_INIT(l);
    STAILQ_INIT(st);
    SIMPLEQ_INIT(si);
    TAILQ_INIT(t);
    CIRCLEQ_INIT(c);
    for (int number = 0; number < count; number++) {
        struct item *made = fresh(number);
        SLIST_INSERT_HEAD(s, made, slink);
        LIST_INSERT_HEAD(l, made, link);
        STAILQ_INSERT_TAIL(st, made, deep.inner);
        SIMPLEQ_INSERT_TAIL(si, made, simple);
        TAILQ_INSERT_TAIL(t, made, queue);
        CIRCLEQ_INSERT_TAIL(c, made, ring);
    }
}

#define SAY(KIND, head, field, shape)                                   \
    do {                                                                \
        struct item *each;                                              \
        truth_case(#head, shape, #head, "", 0, -1);                     \
        KIND##_FOREACH(each, &head, field) truth_node(0, each);         \
    } while (0)

#define SAY_ALL(size)                                                   \
    SAY(SLIST, slist_##size, slink, "bsd-slist");                       \
    SAY(LIST, list_##size, link, "bsd-list");                           \
    SAY(STAILQ, stailq_##size, deep.inner, "bsd-stailq");               \
    SAY(SIMPLEQ, simpleq_##size, simple, "bsd-simpleq");                \
    SAY(TAILQ, tailq_##size, queue, "bsd-tailq");                       \
    SAY(CIRCLEQ, circleq_##size, ring, "bsd-circleq")

/* Begin a case of damage: the list as far as it is sound has these elements of an array. */
static struct item *damaged(const char *head, const char *shape, struct item **elements, int count) {
    truth_case(head, shape, head, "", 0, -1);
    for (int at = 0; at < count; at++)
        truth_node(0, elements[at]);
    return elements[count - 1];
}

static void damage(void) {
    struct item *it[10];
    for (int set = 0; set < 9; set++) {
        for (int at = 0; at < 10; at++)
            it[at] = fresh(at);
#define CHAIN(KIND, head, field)                                        \
    KIND##_INIT(&head);                                                 \
    for (int at = 0; at < 10; at++)                                     \
        KIND##_INSERT_TAIL(&head, it[at], field)
#define PUSH(KIND, head, field)                                         \
    KIND##_INIT(&head);                                                 \
    for (int at = 9; at >= 0; at--)                                     \
        KIND##_INSERT_HEAD(&head, it[at], field)
        switch (set) {
        case 0:
            PUSH(SLIST, slist_rho, slink);
            damaged("slist_rho", "bsd-slist", it, 10)->slink.sle_next = it[4];
            truth_broken(0, "cycle");
            break;
        case 1:
            PUSH(SLIST, slist_stray, slink);
            damaged("slist_stray", "bsd-slist", it, 6)->slink.sle_next = NOWHERE;
            truth_broken(0, "bad-pointer");
            break;
        case 2:
            PUSH(LIST, list_self, link);
            damaged("list_self", "bsd-list", it, 3)->link.le_next = it[2];
            truth_broken(0, "cycle");
            break;
        case 3: /* sound forwards */
            PUSH(LIST, list_prev, link);
            damaged("list_prev", "bsd-list", it, 10);
            truth_problem("list-prev");
            it[5]->link.le_prev = &it[2]->link.le_next;
            break;
        case 4:
            CHAIN(STAILQ, stailq_tail, deep.inner);
            damaged("stailq_tail", "bsd-stailq", it, 10);
            truth_problem("list-last");
            stailq_tail.stqh_last = &it[7]->deep.inner.stqe_next;
            break;
        case 5:
            CHAIN(TAILQ, tailq_prev, queue);
            damaged("tailq_prev", "bsd-tailq", it, 10);
            truth_problem("list-prev");
            it[9]->queue.tqe_prev = NOWHERE;
            break;
        case 6:
            CHAIN(TAILQ, tailq_stray, queue);
            damaged("tailq_stray", "bsd-tailq", it, 1)->queue.tqe_next = NOWHERE;
            truth_broken(0, "bad-pointer");
            break;
        case 7: /* cut: ends with null instead of its head */
            CHAIN(CIRCLEQ, circleq_cut, ring);
            damaged("circleq_cut", "bsd-circleq", it, 4)->ring.cqe_next = NULL;
            truth_problem("list-end");
            break;
        case 8: /* the last leads back into the list, not to the head */
            CHAIN(CIRCLEQ, circleq_rho, ring);
            damaged("circleq_rho", "bsd-circleq", it, 10)->ring.cqe_next = it[3];
            truth_broken(0, "cycle");
            break;
        }
    }
}

static void two_lists(void) {
    struct twice *each;
    TAILQ_INIT(&nameless);
    for (int number = 0; number < 5; number++) {
        struct twice *made = calloc(1, sizeof *made);
        TAILQ_INSERT_HEAD(&nameless, made, by_name);
    }
    truth_case("nameless", "bsd-tailq", "nameless", "--next by_name.tqe_next", 0, -1);
    TAILQ_FOREACH(each, &nameless, by_name) truth_node(0, each);
}

static void row(void) {
    struct item *each;
    for (int at = 0; at < 4; at++)
        CIRCLEQ_INIT(&circleq_row[at]);
    for (int number = 0; number < 20; number++) {
        struct circleq *head = &circleq_row[number % 4 == 2 ? 3 : number % 4];
        each = fresh(number);
        CIRCLEQ_INSERT_TAIL(head, each, ring);
    }
    truth_case("circleq_row", "options", "circleq_row", "", 4, -1);
    for (int at = 0; at < 4; at++)
        CIRCLEQ_FOREACH(each, &circleq_row[at], ring) truth_node(at, each);
}

int main(void) {
    struct item *each;
    fill(0, &slist_empty, &list_empty, &stailq_empty, &simpleq_empty, &tailq_empty, &circleq_empty);
    fill(1, &slist_one, &list_one, &stailq_one, &simpleq_one, &tailq_one, &circleq_one);
    fill(MANY, &slist_many, &list_many, &stailq_many, &simpleq_many, &tailq_many, &circleq_many);
    SAY_ALL(empty);
    SAY_ALL(one);
    SAY_ALL(many);
    truth_case("tailq_pointer", "bsd-tailq", "tailq_pointer", "", 0, -1);
    TAILQ_FOREACH(each, tailq_pointer, queue) truth_node(0, each);
    two_lists();
    row();
    damage();
    truth_park();
}
