/* A few blocks of which a program states what is to be said, in the form of leakcases.h; all others are reached. */
#ifndef STATED_H
#define STATED_H

#define MAX_STATED 512
static struct stated {
    const char *name, *state, *role;
    uintptr_t key; /* ~address: what is lost must be named nowhere */
    size_t asked, usable;
} stated[MAX_STATED];
static size_t stated_count;

static void state_block(const char *name, void *block, size_t asked, const char *state, const char *role)
{
    if (stated_count == MAX_STATED || !block)
        give_up("too many blocks to state, or no memory");
    size_t usable = malloc_usable_size(block);
    stated[stated_count++] = (struct stated){name, state, role, ~(uintptr_t)block, asked, usable};
}

static void json_stated(void)
{
    json_open("blocks", '[');
    for (size_t i = 0; i < stated_count; i++) {
        json_open(NULL, '{');
        json_text("name", stated[i].name);
        json_address("address", (void *)~stated[i].key);
        json_number("asked", stated[i].asked);
        json_number("usable", stated[i].usable);
        json_text("state", stated[i].state);
        json_text("role", stated[i].role);
        json_address("clear", NULL);
        json_close('}');
    }
    json_close(']');
}

/* Overwrite what calls have left below in the stack. */
static __attribute__((noinline)) void scrub_stack(void)
{
    char rest[65536];
    memset(rest, 0, sizeof rest);
    __asm__ volatile("" : : "r"(rest) : "memory");
}

#endif
