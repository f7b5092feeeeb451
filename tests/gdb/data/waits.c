/* Threads that wait, each in a call of its own, again and again. At an end of standard input it prints how often each
   call failed with EINTR: waits. No signal has a handler. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct timespec HOUR = {3600, 0};
static sigset_t some;
static char bytes[4096];
static int words[2], semaphores, messages;
static struct sembuf take = {0, -1, 0};

static int made_epoll(void) { return epoll_create1(0); }
static int made_inotify(void) { return inotify_init(); }
static int made_event(void) { return eventfd(0, 0); }
static int made_signal(void) { return signalfd(-1, &some, 0); }

static int made_timer(void)
{
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(timer, 0, &(struct itimerspec){{0, 0}, HOUR}, NULL);
    return timer;
}

static int made_pipe(void)
{
    int ends[2];
    return pipe(ends) ? -1 : ends[0];
}

static int bounded(int socket)
{
    struct timeval hour = {3600, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &hour, sizeof hour);
    return socket;
}

static int made_socket(void)
{
    int ends[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) ? -1 : ends[0];
}

static int made_listener(void)
{
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr none = {.sa_family = AF_UNIX};
    bind(listener, &none, sizeof none.sa_family); /* the kernel finds a name */
    listen(listener, 1);
    return listener;
}

static int made_bounded(void) { return bounded(made_socket()); }
static int made_bounded_listener(void) { return bounded(made_listener()); }

static int made_queue(void)
{
    char name[32];
    struct mq_attr size = {.mq_maxmsg = 1, .mq_msgsize = 100};
    snprintf(name, sizeof name, "/waits-%d", getpid());
    int queue = mq_open(name, O_CREAT | O_RDWR, 0600, &size);
    mq_unlink(name);
    return queue;
}

static int made_ring(void)
{
    unsigned parameters[30] = {0};
    return (int)syscall(425, 1, parameters); /* io_uring_setup */
}

static int made_child(void)
{
    int child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return child;
}

static long epoll(int f) { struct epoll_event e; return epoll_wait(f, &e, 1, -1); }
static long epoll_p(int f) { struct epoll_event e; return epoll_pwait(f, &e, 1, 3600000, &some); }
static long epoll_p2(int f) { struct epoll_event e; return syscall(441, f, &e, 1, &HOUR, NULL, 8); }
static long polls(int f) { (void)f; return poll(NULL, 0, -1); }
static long polls_hour(int f) { (void)f; return poll(NULL, 0, 3600000); }
static long selects(int f) { (void)f; struct timeval hour = {3600, 0}; return select(0, NULL, NULL, NULL, &hour); }
static long sleeps(int f) { (void)f; return nanosleep(&HOUR, NULL); }
static long waits_signal(int f) { (void)f; return sigtimedwait(&some, NULL, &HOUR); }
static long waits_info(int f) { (void)f; return sigwaitinfo(&some, NULL); }
static long semaphore(int f) { (void)f; return semop(semaphores, &take, 1); }
static long semaphore_hour(int f) { (void)f; return semtimedop(semaphores, &take, 1, &HOUR); }
static long message(int f) { (void)f; return msgrcv(messages, bytes, 100, 0, 0); }
static long futex(int f) { (void)f; return syscall(SYS_futex, &words[0], FUTEX_WAIT, 0, NULL, NULL, 0); }
static long futex_hour(int f) { (void)f; return syscall(SYS_futex, &words[1], FUTEX_WAIT, 0, &HOUR, NULL, 0); }
static long receives(int f) { return recv(f, bytes, 1, 0); }
static long accepts(int f) { return accept(f, NULL, NULL); }
static long reads(int f) { return read(f, bytes, sizeof bytes); }
static long queue(int f) { return mq_receive(f, bytes, 100, NULL); }
static long ring(int f) { return syscall(426, f, 0, 1, 1, NULL, 0); } /* io_uring_enter */
static long child(int f) { return waitpid(f, NULL, 0); }
static long pauses(int f) { (void)f; return pause(); }

static long events(int f)
{
    aio_context_t context = 0;
    struct io_event event;
    (void)f;
    if (syscall(SYS_io_setup, 1, &context))
        return -1;
    long found = syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
    int number = errno;
    syscall(SYS_io_destroy, context);
    errno = number;
    return found;
}

static struct call {
    const char *name;
    long (*call)(int);
    int (*make)(void);
    volatile long interrupted;
    volatile int other;
} calls[] = {
    {"epoll_wait", epoll, made_epoll, 0, 0},
    {"epoll_pwait", epoll_p, made_epoll, 0, 0},
    {"epoll_pwait2", epoll_p2, made_epoll, 0, 0},
    {"sigtimedwait", waits_signal, NULL, 0, 0},
    {"sigwaitinfo", waits_info, NULL, 0, 0},
    {"semop", semaphore, NULL, 0, 0},
    {"semtimedop", semaphore_hour, NULL, 0, 0},
    {"recv with SO_RCVTIMEO", receives, made_bounded, 0, 0},
    {"accept with SO_RCVTIMEO", accepts, made_bounded_listener, 0, 0},
    {"io_getevents", events, NULL, 0, 0},
    {"io_uring_enter", ring, made_ring, 0, 0},
    {"poll", polls, NULL, 0, 0},
    {"poll with a timeout", polls_hour, NULL, 0, 0},
    {"select", selects, NULL, 0, 0},
    {"nanosleep", sleeps, NULL, 0, 0},
    {"msgrcv", message, NULL, 0, 0},
    {"mq_receive", queue, made_queue, 0, 0},
    {"futex", futex, NULL, 0, 0},
    {"futex with a timeout", futex_hour, NULL, 0, 0},
    {"recv", receives, made_socket, 0, 0},
    {"accept", accepts, made_listener, 0, 0},
    {"read of a pipe", reads, made_pipe, 0, 0},
    {"read of inotify", reads, made_inotify, 0, 0},
    {"read of eventfd", reads, made_event, 0, 0},
    {"read of timerfd", reads, made_timer, 0, 0},
    {"read of signalfd", reads, made_signal, 0, 0},
    {"waitpid", child, made_child, 0, 0},
    {"pause", pauses, NULL, 0, 0},
};
enum { COUNT = sizeof calls / sizeof *calls };

static void *waits(void *given)
{
    struct call *one = given;
    int file = one->make ? one->make() : 0;
    while (file >= 0) {
        if (one->call(file) < 0 && errno == EINTR)
            one->interrupted++;
        else
            break;
    }
    one->other = file < 0 ? errno : errno ? errno : -1;
    return NULL;
}

int main(void)
{
    sigset_t all;
    pthread_t made;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    sigaddset(&some, SIGUSR2);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    messages = msgget(IPC_PRIVATE, 0600);
    for (int at = 0; at < COUNT; at++)
        pthread_create(&made, NULL, waits, &calls[at]);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    for (int at = 0; at < COUNT; at++) /* which are not to be had here, or returned, stand apart */
        printf("%s: %s%ld\n", calls[at].name, calls[at].other ? "ended " : "", calls[at].interrupted);
    semctl(semaphores, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, NULL);
    fflush(stdout);
    return 0;
}
