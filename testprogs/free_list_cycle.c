/* Damage to a free list or to the numbers around a free chunk, written as a stray pointer would.
 *
 * --bin=unsorted|small|large    where the damaged chunk is (unsorted)
 * --damage=cycle                a chunk's fd leads back into the list, never to the bin
 *          fd | bk              that pointer is overwritten with 0x4242…
 *          size                 the free chunk's size grows by 16: its footer no longer agrees
 *          top                  the top chunk's size becomes all ones
 *          prev_size            the footer after the free chunk shrinks by 16
 */
#define DAMAGED_HEADERS 1
#include "truth.h"

#define CHUNKS 6
#define VICTIM 3

static char *blocks[CHUNKS], *pins[CHUNKS + 1], *last;
static void *fill[32];
static size_t block_size, old_value;
static size_t *field;
static const char *damage, *bin;

/* A chunk's fields as the block's words: fd and bk are the first two. */
static size_t *fd(char *block) { return (size_t *)block; }
static size_t *bk(char *block) { return (size_t *)block + 1; }
static size_t *footer(char *block) { return (size_t *)(chunk_of(block) + chunk_size(block)); }

/* Blocks up to tcache's limit fill it first. */
static size_t fills(void) { return strcmp(bin, "small") ? 0 : tcache_depth(); }

static void from_top(void)
{
    last = malloc(20000); /* no free chunk is as large; and it makes malloc sort the unsorted list */
    if (chunk_of(last) + chunk_size(last) + (size_field(last + chunk_size(last))[0] & ~(size_t)7) != sbrk(0))
        give_up("free_list_cycle: the last block does not lie below top");
}

static void make_list(void)
{
    int sorted = strcmp(bin, "unsorted");
    for (size_t i = 0; i < fills(); i++)
        fill[i] = malloc(block_size);
    for (int i = 0; i < CHUNKS; i++) {
        pins[i] = malloc(40);
        blocks[i] = malloc(block_size);
    }
    pins[CHUNKS] = malloc(40);
    if (!sorted)
        from_top();
    for (size_t i = 0; i < fills(); i++)
        free(fill[i]);
    for (int i = 0; i < CHUNKS; i++)
        free(blocks[i]);
    if (sorted)
        from_top();
}

static size_t *find_field(void)
{
    if (!strcmp(damage, "fd") || !strcmp(damage, "cycle"))
        return fd(blocks[VICTIM]);
    if (!strcmp(damage, "bk"))
        return bk(blocks[VICTIM]);
    if (!strcmp(damage, "size"))
        return size_field(blocks[VICTIM]);
    if (!strcmp(damage, "prev_size"))
        return footer(blocks[VICTIM]);
    if (!strcmp(damage, "top"))
        return (size_t *)(chunk_of(last) + chunk_size(last)) + 1;
    give_up("free_list_cycle: --damage is cycle, fd, bk, size, top or prev_size");
    return NULL;
}

static size_t bad_value(void)
{
    if (!strcmp(damage, "cycle"))
        return *fd(blocks[VICTIM]) == (size_t)chunk_of(blocks[VICTIM - 1])
                   ? (size_t)chunk_of(blocks[VICTIM + 1])
                   : (size_t)chunk_of(blocks[VICTIM - 1]);
    if (!strcmp(damage, "size"))
        return *field + 16;
    if (!strcmp(damage, "prev_size"))
        return *field - 16;
    return !strcmp(damage, "top") ? ~(size_t)0 : (size_t)0x4242424242424242ull;
}

static void details(void)
{
    int at_top = !strcmp(damage, "top");
    json_text("damage", healthy ? "none" : damage);
    json_text("bin", bin);
    json_address("field", field);
    json_number("value_before", old_value);
    json_number("value_now", *field);
    json_address("damaged_chunk", at_top ? (char *)(field - 1) : chunk_of(blocks[VICTIM]));
    json_address("before_chunk", chunk_of(at_top ? last : pins[VICTIM]));
    if (at_top)
        json_null("next_chunk");
    else
        json_address("next_chunk", chunk_of(pins[VICTIM + 1]));
    json_number("block_size", block_size);
    json_addresses("free_blocks", (void **)blocks, CHUNKS);
    json_addresses("pins", (void **)pins, CHUNKS + 1);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "free_list_cycle", 1);
    damage = text_option("damage", "cycle");
    bin = text_option("bin", "unsorted");
    block_size = strcmp(bin, "small") ? 3000 : 400;
    make_list();
    take_malloc_info();
    field = find_field();
    old_value = *field;
    if (!healthy)
        *field = bad_value();
    truth_end(details);
}
