/* A library that testprogs/leaks.c opens: one thread-local pointer, dynamic as the library comes late, and one in data. */
static __thread void *in_thread[100];
static void *in_all = &in_all;

void **of_thread(void) { return &in_thread[50]; }
void **of_all(void) { return &in_all; }
