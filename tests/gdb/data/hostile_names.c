// Waits for ever; its threads and its mapped files have the names that the command line gives: FILE THREAD...
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_it(void *name) {
    prctl(PR_SET_NAME, name);
    pthread_mutex_lock(&held);
    return NULL;
}

int main(int count, char **words) {
    int file = open(words[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 8192)) return 1;
    for (int flags = MAP_SHARED; flags <= MAP_PRIVATE; flags++) {
        char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, flags, file, 0);
        memset(page, 'x', 100);
    }
    for (int i = 0; i < 200; i++) strcpy(malloc(100 + i), words[1]);
    pthread_mutex_lock(&held);
    for (int i = 2; i < count; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_it, words[i]);
    }
    sleep(1);
    puts("ready");
    fflush(stdout);
    pause();
}
