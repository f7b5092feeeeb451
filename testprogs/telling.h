/* What truth.h and jetruth.h share: options, named threads with small stacks, and JSON by write(2) from a static
 * buffer. Nothing here allocates by itself. Included by them, not by programs.
 */
#ifndef TELLING_H
#define TELLING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 128
#define THREAD_STACK (128 * 1024)
#define WORD sizeof(size_t)
#define KIB 1024u
#define MIB (1024u * 1024u)
#define UNUSED __attribute__((unused))

static void give_up(const char *message)
{
    UNUSED ssize_t ignored = write(2, message, strlen(message));
    ignored = write(2, "\n", 1);
    _exit(3);
}

/* ---- options ---- */

static const char *program_name, *truth_path;
static int healthy, aborts, truth_argc;
static char **truth_argv;

/* The text of --NAME=TEXT or --NAME TEXT, or the default. */
static UNUSED const char *text_option(const char *name, const char *fallback)
{
    size_t length = strlen(name);
    for (int i = 1; i < truth_argc; i++) {
        if (strncmp(truth_argv[i], "--", 2) || strncmp(truth_argv[i] + 2, name, length))
            continue;
        const char *rest = truth_argv[i] + 2 + length;
        if (*rest == '=')
            return rest + 1;
        if (!*rest && i + 1 < truth_argc)
            return truth_argv[i + 1];
    }
    return fallback;
}

static UNUSED size_t number_option(const char *name, size_t fallback)
{
    const char *text = text_option(name, NULL);
    return text ? strtoul(text, NULL, 0) : fallback;
}

static int flag_option(const char *name)
{
    for (int i = 1; i < truth_argc; i++)
        if (!strncmp(truth_argv[i], "--", 2) && !strcmp(truth_argv[i] + 2, name))
            return 1;
    return 0;
}

#ifdef __GLIBC__
#include <gnu/libc-version.h>

/* Is the running libc at least 2.MINOR? */
static UNUSED int glibc_at_least(unsigned minor)
{
    return strtoul(gnu_get_libc_version() + 2, NULL, 10) >= minor;
}
#endif

/* ---- threads ---- */

static struct thread_entry {
    int tid, alive;
    char name[16];
    void *(*run)(void *);
    void *argument;
} thread_table[MAX_THREADS];
static int thread_count;
static __thread int thread_slot = -1; /* index in the table; -1: the main thread */

static void *thread_start(void *entry)
{
    struct thread_entry *self = entry;
    thread_slot = (int)(self - thread_table);
    pthread_setname_np(pthread_self(), self->name);
    self->tid = (int)syscall(SYS_gettid);
    void *result = self->run(self->argument);
    self->alive = 0;
    return result;
}

/* Start a named thread with a small stack. */
static UNUSED pthread_t spawn(const char *name, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (thread_count == MAX_THREADS)
        give_up("truth: too many threads: raise MAX_THREADS");
    struct thread_entry *entry = &thread_table[thread_count++];
    entry->alive = 1;
    entry->run = run;
    entry->argument = argument;
    strncpy(entry->name, name, sizeof entry->name - 1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    if (pthread_create(&thread, &attributes, thread_start, entry))
        give_up("truth: cannot create a thread");
    return thread;
}

static UNUSED const char *numbered(const char *stem, int number)
{
    static char text[16];
    snprintf(text, sizeof text, "%s-%d", stem, number);
    return text;
}

static UNUSED void hold(void)
{
    for (;;)
        pause();
}

/* Wait until all that meet here have arrived; twice as many meetings as needed never hurt. */
static pthread_barrier_t meeting;
static UNUSED void expect(unsigned parties) { pthread_barrier_init(&meeting, NULL, parties); }
static UNUSED void meet(void) { pthread_barrier_wait(&meeting); }

/* Is a thread in a system call other than a futex's, as one that parks is? */
static UNUSED int is_parked(int tid)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    int file = open(path, O_RDONLY);
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 && text[0] >= '0' && text[0] <= '9' && atoi(text) != SYS_futex;
}

static UNUSED void await_parked(int tid)
{
    struct timespec moment = {0, 2000000};
    for (int tries = 0; !is_parked(tid); tries++) {
        if (tries == 15000)
            give_up("truth: a thread does not park");
        nanosleep(&moment, NULL);
    }
}
/* ---- writing JSON ---- */

static char out_buffer[1 << 16];
static size_t out_length;
static int out_file, out_comma;

static void out_flush(void)
{
    for (size_t done = 0; done < out_length;) {
        ssize_t wrote = write(out_file, out_buffer + done, out_length - done);
        if (wrote < 0 && errno != EINTR)
            give_up("truth: cannot write");
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    out_length = 0;
}

static void out_char(char c)
{
    if (out_length == sizeof out_buffer)
        out_flush();
    out_buffer[out_length++] = c;
}

static void out_text(const char *text)
{
    while (*text)
        out_char(*text++);
}

static void out_number(uintmax_t value, unsigned base)
{
    char digits[32];
    int n = sizeof digits;
    digits[--n] = 0;
    do
        digits[--n] = "0123456789abcdef"[value % base];
    while (value /= base);
    out_text(digits + n);
}

static void out_string(const char *text, size_t length)
{
    out_char('"');
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\n') {
            out_text("\\n");
            continue;
        }
        if (text[i] == '\t') {
            out_text("\\t");
            continue;
        }
        if (text[i] == '"' || text[i] == '\\')
            out_char('\\');
        out_char(text[i]);
    }
    out_char('"');
}

static void comma(void)
{
    if (out_comma)
        out_char(',');
    out_comma = 1;
}

/* Every json_ function takes the key, or NULL inside an array. */
static void json_key(const char *key)
{
    comma();
    if (key) {
        out_string(key, strlen(key));
        out_char(':');
    }
}

static void json_open(const char *key, char bracket)
{
    json_key(key);
    out_char(bracket);
    out_comma = 0;
}

static void json_close(char bracket)
{
    out_char(bracket);
    out_comma = 1;
}

static void json_number(const char *key, uintmax_t value)
{
    json_key(key);
    out_number(value, 10);
}

static UNUSED void json_bool(const char *key, int value)
{
    json_key(key);
    out_text(value ? "true" : "false");
}

static UNUSED void json_null(const char *key)
{
    json_key(key);
    out_text("null");
}

static UNUSED void json_text(const char *key, const char *value)
{
    json_key(key);
    out_string(value, strlen(value));
}

static UNUSED void json_address(const char *key, const volatile void *value)
{
    json_key(key);
    out_text("\"0x");
    out_number((uintptr_t)value, 16);
    out_char('"');
}

/* ["0x…", bytes] */
static UNUSED void json_pair(const char *key, const volatile void *address, size_t bytes)
{
    json_open(key, '[');
    json_address(NULL, address);
    json_number(NULL, bytes);
    json_close(']');
}

static UNUSED void json_addresses(const char *key, void *const *addresses, size_t count)
{
    json_open(key, '[');
    for (size_t i = 0; i < count; i++)
        json_address(NULL, addresses[i]);
    json_close(']');
}
/* ---- the truth's file ---- */

static char truth_temporary[PATH_MAX];

static void open_truth(void)
{
    out_file = 1;
    if (truth_path) {
        snprintf(truth_temporary, sizeof truth_temporary, "%s.tmp", truth_path);
        out_file = open(truth_temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (out_file < 0)
            give_up("truth: cannot create the truth file");
    }
    out_comma = 0;
}

/* Complete or not there: it gets its name now. */
static void close_truth(void)
{
    out_char('\n');
    out_flush();
    if (truth_path) {
        close(out_file);
        rename(truth_temporary, truth_path);
    }
}

static void parse_options(int argc, char **argv, const char *name)
{
    program_name = name;
    truth_argc = argc;
    truth_argv = argv;
    healthy = flag_option("healthy");
    aborts = flag_option("abort");
    truth_path = text_option("truth", NULL);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

/* Say that all is told, then park or abort. */
static void ready(void)
{
    UNUSED ssize_t ignored = write(1, "READY\n", 6);
    if (aborts)
        abort();
    hold();
}

#endif
