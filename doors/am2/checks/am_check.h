/* What the programs below share: checks that name the call, and a watchdog. */
#ifndef AM_CHECK_H
#define AM_CHECK_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ammpi.h>
#include <ammpi_spmd.h>

#define AM_Safe(call)                                                                                      \
    do {                                                                                                   \
        int result_ = (call);                                                                              \
        if (result_ != AM_OK) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, result_);                      \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)
#define GIVES(call, expected)                                                                              \
    do {                                                                                                   \
        int result_ = (call);                                                                              \
        if (result_ != (expected)) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, result_, (expected));  \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)
#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)

/* Ends the program if it takes longer. */
static inline void watchdog(unsigned seconds) { alarm(seconds); }

#endif
