/* Pointers that the program itself stores mangled as malloc's safe-linking does: XORed with their own address >> 12. A
 * list so linked, one in a variable, one into the middle, one with a tag, one mangled by another word's address, one in a
 * freed block; and blocks that are lost. Each block is stated with what is to be said of it: as words stand, mangled
 * ones too, and tags cleared besides. The healthy twin has the list and the variable alone, so nothing is lost.
 */
#include "truth.h"

struct item {
    struct item *next; /* mangled */
    size_t id;
    char name[6 * sizeof(size_t)];
};

#define ITEMS 6
#define MAX_TOLD 32

static struct item *volatile first; /* as it is */
static struct item *in_variable;
static void *in_middle, *with_tag, *of_another;

struct expected {
    const char *plain, *mangled, *cleared, *role, *mangled_role;
};
#define LOST "leaked", "leaked", "leaked", "leak root"
static const struct expected as_it_is = {"reached", "reached", "reached", "", ""};
static const struct expected mangled = {"leaked", "reached", "reached", "leak root", ""};
static const struct expected mangled_middle = {"leaked", "possibly leaked", "possibly leaked", "leak root", ""};
static const struct expected mangled_tag = {"leaked", "possibly leaked", "reached", "leak root", ""};
static const struct expected lost = {LOST, "leak root"}, kept_by_lost = {LOST, "indirect"};

static struct told {
    const char *name;
    uintptr_t key; /* ~address: what is lost must be named nowhere */
    size_t usable;
    const struct expected *expected;
} told[MAX_TOLD];
static size_t told_count;

static uintptr_t make(const char *name, const struct expected *expected)
{
    struct item *item = calloc(1, sizeof *item);
    if (!item || told_count == MAX_TOLD)
        give_up("mangled: no memory, or too many blocks");
    item->id = told_count;
    told[told_count++] = (struct told){name, ~(uintptr_t)item, malloc_usable_size(item), expected};
    return ~(uintptr_t)item;
}

/* Store a hidden pointer into a word, mangled by the address of another that lies so far away. */
static void store_as_far(void *word, uintptr_t hidden, size_t offset, uintptr_t distance)
{
    *(volatile uintptr_t *)word = (~hidden + offset) ^ ((uintptr_t)word + distance) >> 12;
}

static void store(void *word, uintptr_t hidden, size_t offset) { store_as_far(word, hidden, offset, 0); }

static __attribute__((noinline)) void make_list(void)
{
    uintptr_t last = make("first", &as_it_is);
    first = (struct item *)~last;
    for (int i = 1; i < ITEMS; i++) {
        uintptr_t next = make("next", &mangled);
        store((void *)~last, next, 0);
        last = next;
    }
    store((void *)~last, ~(uintptr_t)0, 0); /* null */
    uintptr_t single = make("in a variable", &mangled);
    store((void *)~single, ~(uintptr_t)0, 0);
    store(&in_variable, single, 0);
}

/* The freed block is large enough that free leaves its ninth word. */
static __attribute__((noinline)) void make_lost(void)
{
    store(&in_middle, make("by its middle", &mangled_middle), 24);
    store(&with_tag, make("with a tag", &mangled_tag), 1);
    store_as_far(&of_another, make("mangled by another word", &lost), 0, 1 << 30);
    void **freed = calloc(1, 200);
    store(freed + 8, make("by a freed block", &lost), 0);
    free(freed);
    uintptr_t head = make("lost", &lost), next = make("next of lost", &kept_by_lost);
    store((void *)~head, next, 0);
    make("lost alone", &lost);
}

/* Whatever calls have left below. */
static __attribute__((noinline)) void scrub(void)
{
    char rest[16384];
    memset(rest, 0, sizeof rest);
    __asm__ volatile("" : : "r"(rest) : "memory");
}

static void json_told(const struct told *one)
{
    json_open(NULL, '{');
    json_text("name", one->name);
    json_address("address", (void *)~one->key);
    json_number("usable", one->usable);
    json_text("plain", one->expected->plain);
    json_text("mangled", one->expected->mangled);
    json_text("cleared", one->expected->cleared);
    json_text("role", one->expected->role);
    json_text("mangled_role", one->expected->mangled_role);
    json_close('}');
}

static void details(void)
{
    json_open("blocks", '[');
    for (size_t i = 0; i < told_count; i++)
        json_told(&told[i]);
    json_close(']');
    json_address("in_variable", &in_variable);
    json_address("in_middle", &in_middle);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "mangled", 1);
    make_list();
    if (!healthy)
        make_lost();
    take_malloc_info();
    write_truth(details);
    scrub();
    ready();
}
