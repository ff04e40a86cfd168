/* What the checks share: memory, children, and a watchdog that ends them. */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "towpath.h"

#define LONG 20000000000ull
#define SHORT 2000000ull

static pid_t child;
static const char *step = "";

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: %s: %s does not hold (%s)\n", __FILE__, __LINE__, step, #condition,    \
                    tp_last_error());                                                                      \
            if (child > 0) kill(child, SIGKILL);                                                           \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)
#define GIVES(call, expected)                                                                              \
    do {                                                                                                   \
        int result_ = (call);                                                                              \
        if (result_ != (expected)) {                                                                       \
            fprintf(stderr, "%s:%d: %s: %s is %d (%s), not %d\n", __FILE__, __LINE__, step, #call, result_, \
                    tp_strerror(result_), (expected));                                                     \
            if (child > 0) kill(child, SIGKILL);                                                           \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)

static void late(int number) {
    (void)number;
    if (child > 0) kill(child, SIGKILL);
    _exit(124);
}

/* Gives the program so many seconds; then it ends its child and itself. */
static inline void watchdog(unsigned seconds) {
    signal(SIGALRM, late);
    alarm(seconds);
}

/* Zeroed memory that forked children share. */
static inline void *shared_memory(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static inline void nap(long ns) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

#endif
