/* What the checks share: base.h for Towpath's calls, and memory. */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "towpath.h"

#define WHY tp_last_error()
#define MEANING(number) tp_strerror(number)
#include "base.h"

#define LONG 20000000000ull
#define SHORT 2000000ull

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
