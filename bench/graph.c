/* A heap of N blocks of seeded random sizes that hang from one another in a random binary tree; one in a hundred
   hangs from nowhere. Prints how many those are; then a core. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
    struct node *left, *right;
};

struct node *root;
static uint64_t seed = 1;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Each block hangs from one that was made before: from its left if that is free, else from its right. */
int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000, open = 0, lost = 0;
    struct node **at = malloc(count * sizeof *at);
    for (size_t i = 0; i < count; i++) {
        struct node *node = calloc(1, 16 + draw() % 224);
        if (i && draw() % 100 == 0) {
            lost++;
            continue;
        }
        if (!i)
            root = node;
        else {
            size_t chosen = draw() % open;
            struct node *parent = at[chosen];
            if (!parent->left)
                parent->left = node;
            else {
                parent->right = node;
                at[chosen] = at[--open];
            }
        }
        at[open++] = node;
    }
    for (size_t i = 0; i < count; i++)
        ((volatile struct node **)at)[i] = NULL;
    free(at);
    printf("%zu\n", lost);
    fflush(stdout);
    abort();
}
