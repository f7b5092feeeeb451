/* Linked lists of many kinds, each broken in one way; each is a global of the name that the truth gives.
 *
 * In the healthy twin all have as many nodes, and each ends as it should.
 *
 * The truth of a list: "nodes" before its end, each once; "end", why it ended; "held", what the last link
 * held, decoded; "by", the node whose link that was (null: the head); "start" and "cycle" of a cycle; "wrong",
 * a node or head whose other facts disagree, with "says" and "should".
 */
#include "truth.h"
#include <sys/queue.h>

struct item {
    struct item *next;
    struct item *prev;
    unsigned number;
    char label[12];
};

struct counted_list {
    struct item *first;
    struct item *last;
    size_t count;
};

/* As Linux has it. */
struct list_head {
    struct list_head *next, *prev;
};

struct job {
    unsigned number;
    char name[12];
    struct list_head link;
    size_t cost;
};

TAILQ_HEAD(parcel_queue, parcel);
struct parcel {
    unsigned number;
    TAILQ_ENTRY(parcel) at;
};

struct xor_item {
    size_t both; /* the address before XOR the address after */
    unsigned number;
};

struct slot {
    int lock;
    struct item *chain;
};

#define NODES 40
#define BAD 24 /* which node is spoilt, counted from 0 */
#define LOOP 7
#define LONG_NODES 12000
#define LONG_LOOP 5000
#define SLOTS 16

struct item *sound, *empty, *rho, *self_loop, *closed, *long_rho, *dangling, *guarded, *wild, *unlinked, *busy, *freed;
struct item *misaligned, *tagged, *mangled, *backward;
struct counted_list truncated, short_counted, wrong_tail;
struct list_head jobs, jobs_astray, jobs_backward;
struct parcel_queue parcels, parcels_tail, parcels_backward;
struct xor_item *xored;
struct slot slots[SLOTS];

/* ---- what is stated ---- */

static struct stated {
    const char *name, *kind, *end;
    const void *variable, *first, *by, *held, *wrong;
    size_t nodes, start, cycle, says, should;
} stated[40];
static int stated_count;

static struct stated *state(const char *name, const char *kind, const void *variable, const void *first, size_t nodes)
{
    struct stated *fresh = &stated[stated_count++];
    *fresh = (struct stated){.name = name, .kind = kind, .end = "null", .variable = variable, .first = first};
    fresh->nodes = nodes;
    return fresh;
}

static void ends(struct stated *list, const char *end, size_t nodes, const void *by, const void *held)
{
    list->end = end;
    list->nodes = nodes;
    list->by = by;
    list->held = held;
}

static void is_wrong(struct stated *list, const void *wrong, size_t says, size_t should)
{
    list->wrong = wrong;
    list->says = says;
    list->should = should;
}

/* ---- sound lists to begin with ---- */

/* Nodes of one block each, linked in another order than that of their addresses. */
static struct item **make_items(size_t count)
{
    struct item **made = malloc(count * sizeof *made), **ordered = malloc(count * sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = calloc(1, sizeof **made);
    for (size_t i = 0; i < count; i++)
        ordered[i] = made[i * 7 % count];
    for (size_t i = 0; i < count; i++) {
        ordered[i]->number = (unsigned)i;
        snprintf(ordered[i]->label, sizeof ordered[i]->label, "item %u", (unsigned)i);
        ordered[i]->next = i + 1 < count ? ordered[i + 1] : NULL;
        ordered[i]->prev = i ? ordered[i - 1] : NULL;
    }
    free(made);
    return ordered; /* 7 divides no count of ours */
}

static struct stated *make_list(const char *name, struct item **head, struct item ***items)
{
    *items = make_items(NODES);
    *head = (*items)[0];
    return state(name, "item", head, *head, NODES);
}

/* ---- damage ---- */

/* The spoilt node's link is overwritten with a value. */
static void spoil(const char *name, struct item **head, const char *end, uintptr_t value)
{
    struct item **items;
    struct stated *list = make_list(name, head, &items);
    if (!healthy) {
        items[BAD]->next = (struct item *)value;
        ends(list, end, BAD + 1, items[BAD], (void *)value);
    }
    free(items);
}

static void loop_back(const char *name, struct item **head, size_t last, size_t to)
{
    struct item **items;
    struct stated *list = make_list(name, head, &items);
    if (!healthy) {
        items[last]->next = items[to];
        ends(list, "cycle", last + 1, items[last], items[to]);
        list->start = to;
        list->cycle = last - to + 1;
    }
    free(items);
}

static void make_long_rho(void)
{
    struct item *items = mmap(NULL, LONG_NODES * sizeof *items, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct stated *list = state("long_rho", "item", &long_rho, items, LONG_NODES);
    for (size_t i = 0; i < LONG_NODES; i++) {
        struct item *item = &items[i * 7 % LONG_NODES];
        item->number = (unsigned)i;
        item->next = i + 1 < LONG_NODES ? &items[(i + 1) * 7 % LONG_NODES] : NULL;
    }
    long_rho = items;
    if (!healthy) {
        struct item *last = &items[(LONG_NODES - 1) * 7 % LONG_NODES];
        size_t to = LONG_NODES - LONG_LOOP;
        last->next = &items[to * 7 % LONG_NODES];
        ends(list, "cycle", LONG_NODES, last, last->next);
        list->start = to;
        list->cycle = LONG_LOOP;
    }
}

/* Low bits are set in some links: 2 bits, so that 32-bit pointers have them too. */
static void make_tagged(void)
{
    struct item **items;
    make_list("tagged", &tagged, &items)->kind = "tagged";
    for (size_t i = 0; i < NODES; i++)
        items[i]->next = (struct item *)((uintptr_t)items[i]->next | i % 4);
    free(items);
}

/* glibc's safe-linking; broken: one link is plain. */
static void make_mangled(void)
{
    struct item **items;
    struct stated *list = make_list("mangled", &mangled, &items);
    list->kind = "mangled";
    for (size_t i = 0; i < NODES; i++) {
        uintptr_t next = (uintptr_t)items[i]->next, key = (uintptr_t)&items[i]->next >> 12;
        if (healthy || i != BAD) {
            items[i]->next = (struct item *)(next ^ key);
            continue;
        }
        ends(list, (next ^ key) % sizeof(void *) ? "decode-error" : "bad-pointer", BAD + 1, items[i],
             (void *)(next ^ key));
    }
    free(items);
}

static void make_xored(void)
{
    struct xor_item **items = malloc(NODES * sizeof *items);
    for (size_t i = 0; i < NODES; i++)
        items[i] = calloc(1, sizeof **items);
    for (size_t i = 0; i < NODES; i++) {
        items[i]->number = (unsigned)i;
        items[i]->both = (size_t)(i ? items[i - 1] : NULL) ^ (size_t)(i + 1 < NODES ? items[i + 1] : NULL);
    }
    xored = items[0];
    state("xored", "xor", &xored, xored, NODES);
    free(items);
}

static void make_backward(void)
{
    struct item **items;
    struct stated *list = make_list("backward", &backward, &items);
    if (!healthy) {
        items[BAD]->prev = items[BAD - 5];
        is_wrong(list, items[BAD], (size_t)items[BAD - 5], (size_t)items[BAD - 1]);
    }
    free(items);
}

/* The list was cut off behind the spoilt node; its head still counts all. */
static struct stated *make_counted(const char *name, struct counted_list *head, struct item ***items)
{
    *items = make_items(NODES);
    *head = (struct counted_list){(*items)[0], (*items)[NODES - 1], NODES};
    return state(name, "counted", head, head->first, NODES);
}

static void make_counted_lists(void)
{
    struct item **items;
    struct stated *list = make_counted("truncated", &truncated, &items);
    if (!healthy) {
        items[BAD]->next = NULL;
        list->nodes = BAD + 1;
        is_wrong(list, &truncated, NODES, BAD + 1);
    }
    free(items);
    list = make_counted("short_counted", &short_counted, &items);
    if (!healthy) {
        short_counted.count -= 3;
        is_wrong(list, &short_counted, NODES - 3, NODES);
    }
    free(items);
    list = make_counted("wrong_tail", &wrong_tail, &items);
    if (!healthy) {
        wrong_tail.last = items[BAD];
        is_wrong(list, &wrong_tail, (size_t)items[BAD], (size_t)items[NODES - 1]);
    }
    free(items);
}

/* ---- lists that close at their head ---- */

static struct job **make_jobs(struct list_head *head)
{
    struct job **made = malloc(NODES * sizeof *made);
    head->next = head->prev = head;
    for (size_t i = 0; i < NODES; i++) {
        struct job *job = made[i] = calloc(1, sizeof *job);
        job->number = (unsigned)i;
        job->cost = 1000 * i;
        snprintf(job->name, sizeof job->name, "job %u", (unsigned)i);
        job->link.prev = head->prev;
        job->link.next = head;
        head->prev->next = &job->link;
        head->prev = &job->link;
    }
    return made;
}

static void make_job_lists(void)
{
    struct job **made = make_jobs(&jobs);
    struct stated *list = state("jobs", "jobs", &jobs, jobs.next, NODES);
    ends(list, "head", NODES, &made[NODES - 1]->link, &jobs);
    free(made);

    made = make_jobs(&jobs_astray); /* two nodes that lead back to each other, never to the head */
    list = state("jobs_astray", "jobs", &jobs_astray, jobs_astray.next, NODES);
    ends(list, "head", NODES, &made[NODES - 1]->link, &jobs_astray);
    if (!healthy) {
        made[BAD]->link.next = &made[BAD - 1]->link;
        ends(list, "cycle", BAD + 1, &made[BAD]->link, &made[BAD - 1]->link);
        list->start = BAD - 1;
        list->cycle = 2;
    }
    free(made);

    made = make_jobs(&jobs_backward);
    list = state("jobs_backward", "jobs", &jobs_backward, jobs_backward.next, NODES);
    ends(list, "head", NODES, &made[NODES - 1]->link, &jobs_backward);
    if (!healthy) {
        made[BAD]->link.prev = &made[2]->link;
        is_wrong(list, &made[BAD]->link, (size_t)&made[2]->link, (size_t)&made[BAD - 1]->link);
    }
    free(made);
}

/* ---- BSD's tail queue ---- */

static struct parcel **make_parcels(struct parcel_queue *queue)
{
    struct parcel **made = malloc(NODES * sizeof *made);
    TAILQ_INIT(queue);
    for (size_t i = 0; i < NODES; i++) {
        made[i] = calloc(1, sizeof **made);
        made[i]->number = (unsigned)i;
        TAILQ_INSERT_TAIL(queue, made[i], at);
    }
    return made;
}

static void make_parcel_lists(void)
{
    free(make_parcels(&parcels));
    state("parcels", "parcels", &parcels, TAILQ_FIRST(&parcels), NODES);

    struct parcel **made = make_parcels(&parcels_tail);
    struct stated *list = state("parcels_tail", "parcels", &parcels_tail, made[0], NODES);
    if (!healthy) {
        parcels_tail.tqh_last = &made[BAD]->at.tqe_next;
        is_wrong(list, &parcels_tail, (size_t)&made[BAD]->at.tqe_next, (size_t)&made[NODES - 1]->at.tqe_next);
    }
    free(made);

    made = make_parcels(&parcels_backward);
    list = state("parcels_backward", "parcels", &parcels_backward, made[0], NODES);
    if (!healthy) {
        made[BAD]->at.tqe_prev = &made[2]->at.tqe_next;
        is_wrong(list, made[BAD], (size_t)&made[2]->at.tqe_next, (size_t)&made[BAD - 1]->at.tqe_next);
    }
    free(made);
}

/* ---- a table without a shape: slot i has i nodes; three chains are broken ---- */

static size_t slot_nodes[SLOTS];
static const char *slot_ends[SLOTS];

static void make_slots(void *unmapped)
{
    for (size_t i = 0; i < SLOTS; i++) {
        struct item **items = make_items(i + (i % 7 == 0)); /* a count that 7 does not divide */
        slot_nodes[i] = i + (i % 7 == 0);
        slot_ends[i] = "null";
        slots[i].chain = items[0];
        if (!healthy && (i == 3 || i == 9)) {
            items[slot_nodes[i] - 1]->next = items[1];
            slot_ends[i] = "cycle";
        }
        if (!healthy && i == 5) {
            items[slot_nodes[i] - 1]->next = unmapped;
            slot_ends[i] = "bad-pointer";
        }
        free(items);
    }
}

/* The list goes on in a block that was freed: it holds what malloc wrote there. */
static void make_freed(void)
{
    struct item **items;
    struct stated *list = make_list("freed", &freed, &items);
    struct item *block = items[BAD];
    free(items);
    if (healthy)
        return;
    free(block);
    uintptr_t held = ((volatile struct item *)block)->next ? (uintptr_t)((volatile struct item *)block)->next : 0;
    ends(list, !held ? "null" : held % sizeof(void *) ? "decode-error" : "bad-pointer", BAD + 1, block, (void *)held);
}

/* ---- telling ---- */

static void json_maybe(const char *key, const void *address)
{
    if (address)
        json_address(key, address);
    else
        json_null(key);
}

static void json_stated(const struct stated *list)
{
    json_open(list->name, '{');
    json_text("kind", list->kind);
    json_address("variable", list->variable);
    json_maybe("first", list->first);
    json_number("nodes", list->nodes);
    json_text("end", list->end);
    json_maybe("by", list->by);
    json_maybe("held", list->held);
    json_number("start", list->start);
    json_number("cycle", list->cycle);
    json_maybe("wrong", list->wrong);
    json_number("says", list->says);
    json_number("should", list->should);
    json_close('}');
}

static void json_offsets(void)
{
    json_open("offsets", '{');
    json_number("item.prev", offsetof(struct item, prev));
    json_number("job.link", offsetof(struct job, link));
    json_number("parcel.next", offsetof(struct parcel, at.tqe_next));
    json_number("slot.chain", offsetof(struct slot, chain));
    json_number("slot", sizeof(struct slot));
    json_close('}');
}

static void details(void)
{
    json_open("lists", '{');
    for (int i = 0; i < stated_count; i++)
        json_stated(&stated[i]);
    json_close('}');
    json_address("slots", slots);
    json_open("slot_nodes", '[');
    for (int i = 0; i < SLOTS; i++)
        json_number(NULL, slot_nodes[i]);
    json_close(']');
    json_open("slot_ends", '[');
    for (int i = 0; i < SLOTS; i++)
        json_text(NULL, slot_ends[i]);
    json_close(']');
    json_offsets();
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "broken_lists", 1);
    long page = sysconf(_SC_PAGESIZE);
    char *hole = mmap(NULL, 3 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *forbidden = mmap(NULL, (size_t)page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct item **items;
    free((make_list("sound", &sound, &items), items));
    state("empty", "item", &empty, NULL, 0);
    loop_back("rho", &rho, BAD, BAD + 1 - LOOP);
    loop_back("self_loop", &self_loop, BAD, BAD);
    loop_back("closed", &closed, NODES - 1, 0);
    make_long_rho();
    spoil("dangling", &dangling, "bad-pointer", (uintptr_t)hole + (uintptr_t)page + 64);
    spoil("guarded", &guarded, "bad-pointer", (uintptr_t)forbidden + 64);
    spoil("wild", &wild, "bad-pointer", (uintptr_t)0x4242424242424240ull);
    spoil("unlinked", &unlinked, "forbidden", ~(uintptr_t)0);
    spoil("busy", &busy, "forbidden", 1);
    spoil("misaligned", &misaligned, "decode-error", (uintptr_t)&sound + 1);
    make_tagged();
    make_mangled();
    make_xored();
    make_backward();
    make_counted_lists();
    make_job_lists();
    make_parcel_lists();
    make_slots(hole + page + 128);
    make_freed();
    munmap(hole + page, (size_t)page);
    truth_end(details);
}
