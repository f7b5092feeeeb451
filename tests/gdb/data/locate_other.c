/* The second file of locate.c: another static of the same name, and what `struct opaque` is. */
#include "locate.h"

struct opaque {
    long secret;
    struct opaque *next;
};

static int twice = 22;
static struct opaque object = {9, 0};
struct opaque *opaque = &object;

int *other_twice(void)
{
    return &twice;
}
