/* What the bridge is asked about: threads, symbols, nested types. States its own truth as JSON. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 3
#define SHOW(member) printf("\"" #member "\": %zu, ", offsetof(struct probe, member))

struct inner { short tag; int values[3]; };
struct probe {
    char letter;
    unsigned long words[4][2];
    struct inner nested;
    union { int as_int; unsigned as_unsigned; };
    unsigned flag : 3;
    signed char sign;
};

struct probe probe = {'x', {{1, 2}, {3, 4}}, {1, {2, 3, 4}}, {-5}, 1, -1};
static int secret = 42;
__thread int per_thread = 5;
const char *text = "hello \"world\"";
int called;
static pthread_barrier_t barrier;
static void *tls_address[THREADS + 1];
static long tids[THREADS + 1];

int touch(int add) {
    called++;
    return secret + add;
}

static void *work(void *index) {
    tls_address[(long)index] = &per_thread;
    tids[(long)index] = syscall(SYS_gettid);
    pthread_barrier_wait(&barrier);
    pause();
    return NULL;
}

void ready(void) {
    printf("{\"probe\": %zu, \"secret\": %zu, \"size\": %zu, ", (size_t)&probe, (size_t)&secret, sizeof probe);
    SHOW(letter), SHOW(words), SHOW(nested), SHOW(as_int), SHOW(as_unsigned), SHOW(sign);
    printf("\"nested.values\": %zu, \"tls\": {", offsetof(struct probe, nested.values));
    for (int at = 0; at <= THREADS; at++)
        printf("%s\"%ld\": %zu", at ? ", " : "", tids[at], (size_t)tls_address[at]);
    printf("}}\n");
    fflush(stdout);
}

__attribute__((noinline)) int deep(int levels) {
    volatile int local = levels;
    if (levels)
        return deep(levels - 1) + local;
    ready();
    pause();
    return local;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    tls_address[0] = &per_thread;
    tids[0] = syscall(SYS_gettid);
    for (long at = 0; at < THREADS; at++) {
        char name[16];
        pthread_create(&threads[at], NULL, work, (void *)(at + 1));
        snprintf(name, sizeof name, "worker %ld", at);
        pthread_setname_np(threads[at], name);
    }
    pthread_barrier_wait(&barrier);
    if (argc > 1)
        abort();
    return deep(3);
}
