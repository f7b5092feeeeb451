// Threads that wait in two lambdas of one function, and threads that wait where MariaDB's wait for a metadata lock: in a
// condition variable that says nothing of an owner. Built with -O0; it aborts when all wait.
#include <cstdlib>
#include <ctime>
#include <functional>
#include <pthread.h>
#include <semaphore.h>
#include <thread>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static volatile int waiting;

static void wait_for_signal()
{
    pthread_mutex_lock(&mutex);
    waiting++;
    while (waiting)
        pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
}

struct MDL_wait {
    void timed_wait()
    {
        wait_for_signal();  // metadata
    }
};

static void start()
{
    auto produce = [] {
        wait_for_signal();  // produce
    };
    auto consume = [] {
        wait_for_signal();  // consume
    };
    for (int at = 0; at < 2; at++)
        std::thread(produce).detach();
    for (int at = 0; at < 3; at++)
        std::thread(consume).detach();
    for (int at = 0; at < 4; at++)
        std::thread([] { MDL_wait().timed_wait(); }).detach();
}

int main()
{
    start();
    for (int there = 0; there < 9; usleep(1000)) {
        pthread_mutex_lock(&mutex);  // whoever has counted itself has let go of it in the wait
        there = waiting;
        pthread_mutex_unlock(&mutex);
    }
    abort();
}
