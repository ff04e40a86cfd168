/* Checks that name the call, and a watchdog. Before it is included: WHY, the cause of the last error, and
 * MEANING(number), a number's text. */
#ifndef BASE_H
#define BASE_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A child, which ends with the program, and the step of the program. */
static pid_t child;
static const char *step = "";

#define FAILS(...)                                                                                         \
    do {                                                                                                   \
        fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, step);                                          \
        fprintf(stderr, __VA_ARGS__);                                                                      \
        if (child > 0) kill(child, SIGKILL);                                                               \
        _exit(1);                                                                                          \
    } while (0)
#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) FAILS("%s does not hold (%s)\n", #condition, WHY);                               \
    } while (0)
#define GIVES(call, expected)                                                                              \
    do {                                                                                                   \
        int result_ = (call);                                                                              \
        if (result_ != (expected))                                                                         \
            FAILS("%s is %d (%s), not %d\n", #call, result_, MEANING(result_), (expected));                \
    } while (0)

static inline void late(int number) {
    (void)number;
    if (child > 0) kill(child, SIGKILL);
    _exit(124);
}

/* Gives the program so many seconds; then it ends its child and itself. */
static inline void watchdog(unsigned seconds) {
    signal(SIGALRM, late);
    alarm(seconds);
}

#endif
