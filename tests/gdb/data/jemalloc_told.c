/* Preloaded into programs on jemalloc: has jemalloc tell its statistics of the process whenever asked.
 *
 * Below $JEMALLOC_TOLD each process makes a fifo PID.ask. Opening it for writing has its statistics, as JSON,
 * written to PID.json, which then appears at once. Between the snapshot and the answer nothing is allocated but
 * jemalloc's own print buffer.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern void malloc_stats_print(void (*)(void *, const char *), void *, const char *) __attribute__((weak));

static char text[4 << 20];
static size_t length;

static void keep(void *unused, const char *piece)
{
    size_t more = strlen(piece);
    (void) unused;
    if (length + more < sizeof text) {
        memcpy(text + length, piece, more);
        length += more;
    }
}

static void tell(const char *answer)
{
    char unfinished[600];
    snprintf(unfinished, sizeof unfinished, "%s.new", answer);
    for (int turn = 0; turn < 2; turn++) { /* the first makes what jemalloc needs to tell anything */
        length = 0;
        malloc_stats_print(keep, NULL, "J");
    }
    int file = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (write(file, text, length) == (ssize_t) length)
        rename(unfinished, answer);
    close(file);
}

static void *serve(void *folder)
{
    char ask[512], answer[512];
    snprintf(ask, sizeof ask, "%s/%d.ask", (char *) folder, getpid());
    snprintf(answer, sizeof answer, "%s/%d.json", (char *) folder, getpid());
    if (mkfifo(ask, 0600) != 0)
        return NULL;
    for (;;) {
        int asked = open(ask, O_RDONLY | O_CLOEXEC);
        if (asked < 0)
            continue;
        close(asked);
        tell(answer);
    }
}

static void start(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&thread, NULL, serve, getenv("JEMALLOC_TOLD"));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

__attribute__((constructor)) static void begin(void)
{
    if (!malloc_stats_print || !getenv("JEMALLOC_TOLD"))
        return;
    pthread_atfork(NULL, NULL, start);
    start();
}
