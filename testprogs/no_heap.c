/* A program that never allocates: main_arena exists, but nothing was ever taken from the system. */
#include "truth.h"

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "no_heap", 0);
    healthy = 1;
    truth_end(NULL);
}
