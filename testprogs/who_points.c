/* Blocks that one thing each points at: a member of a global, a static, a thread-local variable, a variable of a
 * frame in another thread, a register, a page of its own, the middle of a block, a freed block; a chain; a leaked chain;
 * a pointer to a freed block. Two trees of blocks, which keep a third together. The healthy twin frees nothing that is
 * still pointed at, and leaks nothing.
 */
#include "truth.h"

struct item {
    size_t id;
    struct item *next;
    char name[6 * sizeof(size_t)];
};

struct cache {
    size_t hits;
    char label[2 * sizeof(size_t)];
    struct item *head;
    struct item *slots[4];
};

struct node {
    struct node *left, *right;
};

struct cache cache;
static struct item *lonely;
static __thread struct item *volatile current;
static char *inside;
static void **page;
struct item *dangling;
struct node *owner_a, *owner_b;

/* All that follows is kept as complements: truth must not point at anything. */
static uintptr_t chain[3], of_main, alone, local, in_frame, in_register, of_middle, of_page, of_freed, freed, leaked[2];
static uintptr_t freed_holder, nodes[7];
enum { A, A1, A2, B, B1, S, S1 };
static const size_t node_sizes[] = {1000, 2000, 3000, 500, 700, 9000, 4000};

static void *shown(uintptr_t hidden) { return (void *)~hidden; }

static uintptr_t new_item(size_t id)
{
    struct item *item = calloc(1, sizeof *item);
    item->id = id;
    return ~(uintptr_t)item;
}

/* Whatever calls have left below. */
static __attribute__((noinline)) void scrub(void)
{
    char rest[16384];
    memset(rest, 0, sizeof rest);
    __asm__ volatile("" : : "r"(rest) : "memory");
}

static __attribute__((noinline)) void wait_inside(void)
{
    scrub();
    meet();
    hold();
}

/* The variable is in this frame's memory and nowhere else. */
static __attribute__((noinline)) void *work(void *unused)
{
    struct item *volatile item = shown(in_frame);
    (void)unused;
    wait_inside();
    return item;
}

static void *keep_local(void *unused)
{
    current = shown(local);
    wait_inside();
    return unused;
}

/* pause() for ever with the pointer in one register, and in no memory. */
static __attribute__((noinline)) void pause_with(uintptr_t hidden)
{
#if defined(__x86_64__)
    __asm__ volatile("not %0\n\tmov %0, %%r12\n\txor %0, %0\n1:\tmov $34, %%eax\n\tsyscall\n\tjmp 1b"
                     : "+r"(hidden) : : "r12", "rax", "rcx", "r11", "memory");
#elif defined(__i386__)
    __asm__ volatile("not %0\n\tmov %0, %%esi\n\txor %0, %0\n1:\tmov $29, %%eax\n\tint $0x80\n\tjmp 1b"
                     : "+r"(hidden) : : "esi", "eax", "memory");
#else
    (void)hidden;
    hold();
#endif
}

static void *keep_register(void *unused)
{
    (void)unused;
    scrub();
    meet();
    pause_with(in_register);
    return NULL;
}

static void make_roots(void)
{
    for (int i = 0; i < 3; i++)
        chain[i] = new_item(100 + i);
    cache.head = shown(chain[0]);
    ((struct item *)shown(chain[0]))->next = shown(chain[1]);
    ((struct item *)shown(chain[1]))->next = shown(chain[2]);
    lonely = shown(alone = new_item(200));
    of_main = new_item(250);
    local = new_item(300);
    in_frame = new_item(400);
    in_register = new_item(500);
    inside = (char *)shown(of_middle = new_item(600)) + 3 * sizeof(size_t);
    /* Between two that nobody may read, or the kernel makes one mapping of it and another. */
    page = (void **)((char *)mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    page[5] = shown(of_page = new_item(700));
}

static void make_trees(void)
{
    static const int links[][2] = {{A, A1}, {A, A2}, {B, B1}, {A2, S}, {B1, S}, {S, S1}};
    for (int i = 0; i < 7; i++)
        nodes[i] = ~(uintptr_t)calloc(1, node_sizes[i]);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        struct node *from = shown(nodes[links[i][0]]);
        *(from->left ? &from->right : &from->left) = shown(nodes[links[i][1]]);
    }
    owner_a = shown(nodes[A]);
    owner_b = shown(nodes[B]);
}

/* The freed block goes on pointing at a live one, behind the words that free overwrites. */
static void make_broken(void)
{
    struct item *victim = shown(freed = new_item(800));
    void **holder = calloc(1, 200);
    freed_holder = ~(uintptr_t)holder;
    holder[8] = shown(of_freed = new_item(900));
    leaked[0] = new_item(1000);
    leaked[1] = new_item(1001);
    ((struct item *)shown(leaked[0]))->next = shown(leaked[1]);
    dangling = victim;
    free(victim);
    free(holder);
}

static void json_hidden(const char *key, uintptr_t hidden)
{
    json_key(key);
    out_text("\"0x");
    out_number(~hidden, 16);
    out_char('"');
}

static void json_all(const char *key, const uintptr_t *hidden, size_t count)
{
    json_open(key, '[');
    for (size_t i = 0; i < count; i++)
        json_hidden(NULL, hidden[i]);
    json_close(']');
}

static void details(void)
{
    json_all("chain", chain, 3);
    json_hidden("alone", alone);
    json_hidden("of_main", of_main);
    json_hidden("local", local);
    json_hidden("in_frame", in_frame);
    json_hidden("in_register", in_register);
    json_hidden("of_middle", of_middle);
    json_hidden("of_page", of_page);
    json_number("usable", malloc_usable_size(lonely));
    json_address("cache", &cache);
    json_address("lonely", &lonely);
    json_address("inside", &inside);
    json_address("dangling", &dangling);
    json_address("page", page);
    json_all("nodes", nodes, 7);
    json_open("node_bytes", '[');
    for (int i = 0; i < 7; i++)
        json_number(NULL, malloc_usable_size(shown(nodes[i])));
    json_close(']');
    if (!healthy) {
        json_hidden("freed", freed);
        json_hidden("freed_holder", freed_holder);
        json_hidden("of_freed", of_freed);
        json_all("leaked", leaked, 2);
    }
    scrub(); /* what was written was on the stack */
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "who_points", 1);
    make_roots();
    make_trees();
    struct item *volatile mine = shown(of_main);
    if (!healthy)
        make_broken();
    expect(4);
    spawn("worker", work, NULL);
    spawn("local", keep_local, NULL);
    spawn("register", keep_register, NULL);
    meet();
    for (int i = 0; i < thread_count; i++)
        await_parked(thread_table[i].tid);
    scrub();
    truth_end(details);
    return !mine;
}
