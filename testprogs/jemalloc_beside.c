/* Several allocators in one process: whichever of jemalloc, je_, _rjem_ is preloaded, and glibc's own.
 *
 * --libc-threads N   threads that use glibc's malloc, each in an arena of its own (2)
 *
 * Each gets blocks of the same sizes from its own thread, and frees a third of them. The truth lists them by
 * allocator (`details.allocators`: name, version, live_blocks), with each jemalloc's statistics. There is nothing
 * wrong with it.
 */
#undef JE_PREFIX /* all are used by their full names */
#include "jetruth.h"

#define WITH(prefix)                                                                                                   \
    extern void *prefix##malloc(size_t) WEAK;                                                                          \
    extern void prefix##free(void *) WEAK;                                                                             \
    extern size_t prefix##malloc_usable_size(void *) WEAK;                                                             \
    extern int prefix##mallctl(const char *, void *, size_t *, void *, size_t) WEAK;                                   \
    extern void prefix##malloc_stats_print(void (*)(void *, const char *), void *, const char *) WEAK;

WITH(je_)
WITH(_rjem_)
extern size_t malloc_usable_size(void *);
extern void *__libc_malloc(size_t);
extern void __libc_free(void *);

#define BLOCKS 300

/* glibc's usable size, also where malloc_usable_size is another allocator's. */
static size_t libc_usable(void *block)
{
    size_t field = ((size_t *)block)[-1];
    return (field & ~(size_t)7) - (field & 2 ? 2 : 1) * WORD;
}

static struct allocator {
    const char *name;
    void *(*malloc)(size_t);
    void (*free)(void *);
    size_t (*usable)(void *);
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    void (*print)(void (*)(void *, const char *), void *, const char *);
    void *blocks[BLOCKS];
    char live[BLOCKS];
    int tid;
} allocators[16];
static int allocator_count;

static void *use(void *which)
{
    struct allocator *self = which;
    self->tid = (int)syscall(SYS_gettid);
    for (size_t i = 0; i < BLOCKS; i++) {
        self->blocks[i] = self->malloc(24 + i * i * (i % 50 ? 1 : 7));
        *(char *)self->blocks[i] = 1;
        self->live[i] = 1;
    }
    for (size_t i = 0; i < BLOCKS; i += 3) {
        self->free(self->blocks[i]);
        self->live[i] = 0;
    }
    meet();
    hold();
    return NULL;
}

static void json_allocator(struct allocator *self)
{
    const char *version = NULL;
    size_t length = sizeof version;
    json_open(NULL, '{');
    json_text("name", self->name);
    json_number("tid", (uintmax_t)self->tid);
    if (self->mallctl && !self->mallctl("version", &version, &length, NULL, 0)) {
        json_text("version", version);
        stats_length = 0;
        self->print(discard, NULL, "J");
        self->print(keep, NULL, "J");
        json_key("stats");
        out_string(stats_text, stats_length);
    }
    json_open("live_blocks", '[');
    for (size_t i = 0; i < BLOCKS; i++)
        if (self->live[i])
            json_pair(NULL, self->blocks[i], self->usable(self->blocks[i]));
    json_close(']');
    json_close('}');
}

static void details(void)
{
    json_open("allocators", '[');
    for (int i = 0; i < allocator_count; i++)
        json_allocator(&allocators[i]);
    json_close(']');
}

static void enter(struct allocator allocator) { allocators[allocator_count++] = allocator; }

#define ENTER(prefix, title)                                                                                           \
    if (prefix##mallctl)                                                                                               \
        enter((struct allocator){title, prefix##malloc, prefix##free, prefix##malloc_usable_size, prefix##mallctl,    \
            prefix##malloc_stats_print, {0}, {0}, 0})

int main(int argc, char **argv)
{
    parse_options(argc, argv, "jemalloc_beside");
    healthy = 1;
    ENTER(je_, "je_");
    ENTER(_rjem_, "_rjem_");
    if (mallctl)
        enter((struct allocator){
            "", malloc, free, malloc_usable_size, mallctl, malloc_stats_print, {0}, {0}, 0});
    for (size_t i = 0; i < number_option("libc-threads", 2); i++)
        enter((struct allocator){"glibc", __libc_malloc, __libc_free, libc_usable, NULL, NULL, {0}, {0}, 0});
    expect((unsigned)allocator_count + 1);
    for (int i = 0; i < allocator_count; i++)
        spawn(numbered("user", i), use, &allocators[i]);
    meet();
    open_truth();
    json_open(NULL, '{');
    json_text("program", program_name);
    json_text("glibc", gnu_get_libc_version());
    json_bool("healthy", healthy);
    json_number("pid", (uintmax_t)getpid());
    json_number("word", WORD);
    json_je_threads();
    json_open("details", '{');
    details();
    json_close('}');
    json_close('}');
    close_truth();
    ready();
}
