/* Threads whose tcaches are full in several classes. The healthy twin's tcaches hold one block a class. */
#include "truth.h"

#define WORKERS 4
#define CLASSES 6
#define MAX_DEPTH 32

static const size_t sizes[CLASSES] = {24, 56, 120, 264, 520, 1000};
static void *blocks[WORKERS][CLASSES][MAX_DEPTH], *pins[WORKERS][CLASSES];
static size_t usable[WORKERS][CLASSES];
static size_t depth;

static void *work(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    for (int c = 0; c < CLASSES; c++) {
        for (size_t i = 0; i < depth; i++)
            blocks[number][c][i] = malloc(sizes[c]);
        pins[number][c] = malloc(sizes[c]);
        usable[number][c] = malloc_usable_size(pins[number][c]);
    }
    for (int c = 0; c < CLASSES; c++)
        for (size_t i = 0; i < depth; i++)
            free(blocks[number][c][i]);
    meet();
    hold();
    return NULL;
}

/* The lists in the order of freeing: the last freed is the list's head. */
static void details(void)
{
    json_number("depth", depth);
    json_number("default_depth", tcache_depth());
    json_open("tcaches", '[');
    for (int t = 0; t < WORKERS; t++) {
        json_open(NULL, '{');
        json_number("tid", (uintmax_t)thread_table[t].tid);
        json_text("name", thread_table[t].name);
        json_address("arena", arena_of(pins[t][0]));
        json_open("classes", '[');
        for (int c = 0; c < CLASSES; c++) {
            json_open(NULL, '{');
            json_number("usable", usable[t][c]);
            json_addresses("blocks", blocks[t][c], depth);
            json_close('}');
        }
        json_close(']');
        json_close('}');
    }
    json_close(']');
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "tcache_full", 1);
    mallopt(M_ARENA_MAX, 8);
    depth = healthy ? 1 : tcache_depth();
    expect(WORKERS + 1);
    for (uintptr_t i = 0; i < WORKERS; i++)
        spawn(numbered("cacher", (int)i), work, (void *)i);
    meet();
    truth_end(details);
}
