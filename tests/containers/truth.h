/* What a program says of its own containers, as one line of JSON on standard output, before it parks.

   {"pid": N, "cases": [{"name", "shape", "expr", "options", "bins", "entries", "nodes": [[bin, address…]…],
   "ends": [[bin, reason]…], "problems": […]}…]}: "nodes" holds the bins that are not empty, with the addresses of
   their elements, "ends" only those bins whose end the program broke on purpose, "problems" what a check must
   find besides. "entries" is the container's own count, null where it keeps none. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char truth_end_list[4096], truth_problem_list[4096];
static int truth_cases, truth_bin;

static void truth_close(void) {
    if (truth_cases)
        printf("%s], \"ends\": [%s], \"problems\": [%s]}", truth_bin >= 0 ? "]" : "", truth_end_list,
               truth_problem_list);
    truth_end_list[0] = truth_problem_list[0] = 0;
    truth_bin = -1;
}

/* Begin a case. bins is 0 for a list, entries -1 for unknown; options are walklist's. */
static void truth_case(const char *name, const char *shape, const char *expr, const char *options,
                       long bins, long entries) {
    truth_close();
    printf("%s\n{\"name\": \"%s\", \"shape\": \"%s\", \"expr\": \"%s\", \"options\": \"%s\", \"bins\": %ld, ",
           truth_cases++ ? "," : "{\"cases\": [", name, shape, expr, options, bins);
    printf(entries < 0 ? "\"entries\": null, \"nodes\": [" : "\"entries\": %ld, \"nodes\": [", entries);
}

/* The next node of a bin; bins come in order. */
static void __attribute__((unused)) truth_node(int bin, const void *node) {
    if (bin != truth_bin)
        printf("%s[%d", truth_bin >= 0 ? "], " : "", bin);
    truth_bin = bin;
    printf(", %lu", (unsigned long)(uintptr_t)node);
}

static void truth_append(char *list, const char *text) {
    snprintf(list + strlen(list), sizeof truth_end_list - strlen(list), "%s%s", list[0] ? ", " : "", text);
}

/* This bin (0 for a list) ends so, and not soundly. */
static void __attribute__((unused)) truth_broken(int bin, const char *reason) {
    char text[64];
    snprintf(text, sizeof text, "[%d, \"%s\"]", bin, reason);
    truth_append(truth_end_list, text);
}

/* A check must find this, by its kind; what chains that end badly say of themselves is left out. */
static void __attribute__((unused)) truth_problem(const char *kind) {
    char text[64];
    snprintf(text, sizeof text, "\"%s\"", kind);
    truth_append(truth_problem_list, text);
}

static void truth_park(void) {
    truth_close();
    printf("], \"pid\": %d}\nREADY\n", (int)getpid());
    fflush(stdout);
    for (;;)
        pause();
}
