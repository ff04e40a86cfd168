/* Every call whose name has a number, from 0 to 16 arguments: requests, replies and gets, and AMMPI's with a list. */
#include "am_check.h"

enum { SHORT = 1, MEDIUM, LONG, SHORT_BACK, MEDIUM_BACK, LONG_BACK, GOT, LISTED };

static ep_t a, b;
static eb_t bundle;
static char segment[64], own[64];
static int arrived;

/* Argument `at`: each differs from the others, and some are negative. */
#define V(at) ((at) % 3 == 0 ? -1000003 * (at) : 77 + 4099 * (at))

static void check_arguments(int count, const int *given) {
    for (int at = 1; at <= count; at++) CHECK(given[at] == V(at));
    arrived++;
}
static void check_bytes(const void *buf, size_t nbytes) { CHECK(nbytes == 5 && memcmp(buf, "bytes", 5) == 0); }

static void poll_for(int more) {
    for (int until = arrived + more; arrived < until;) AM_Safe(AM_Poll(bundle));
}

/* Parameters, their names, and arguments, each after a comma. */
#define P0
#define P1 , int a1
#define P2 P1, int a2
#define P3 P2, int a3
#define P4 P3, int a4
#define P5 P4, int a5
#define P6 P5, int a6
#define P7 P6, int a7
#define P8 P7, int a8
#define P9 P8, int a9
#define P10 P9, int a10
#define P11 P10, int a11
#define P12 P11, int a12
#define P13 P12, int a13
#define P14 P13, int a14
#define P15 P14, int a15
#define P16 P15, int a16
#define N0
#define N1 , a1
#define N2 N1, a2
#define N3 N2, a3
#define N4 N3, a4
#define N5 N4, a5
#define N6 N5, a6
#define N7 N6, a7
#define N8 N7, a8
#define N9 N8, a9
#define N10 N9, a10
#define N11 N10, a11
#define N12 N11, a12
#define N13 N12, a13
#define N14 N13, a14
#define N15 N14, a15
#define N16 N15, a16
#define A0
#define A1 , V(1)
#define A2 A1, V(2)
#define A3 A2, V(3)
#define A4 A3, V(4)
#define A5 A4, V(5)
#define A6 A5, V(6)
#define A7 A6, V(7)
#define A8 A7, V(8)
#define A9 A8, V(9)
#define A10 A9, V(10)
#define A11 A10, V(11)
#define A12 A11, V(12)
#define A13 A12, V(13)
#define A14 A13, V(14)
#define A15 A14, V(15)
#define A16 A15, V(16)

#define NUMBERED(n)                                                                                                    \
    static void short_back_##n(void *token P##n) {                                                                     \
        const int given[] = {0 N##n};                                                                                  \
        (void)token;                                                                                                   \
        check_arguments(n, given);                                                                                     \
    }                                                                                                                  \
    static void medium_back_##n(void *token, void *buf, size_t nbytes P##n) {                                          \
        const int given[] = {0 N##n};                                                                                  \
        (void)token;                                                                                                   \
        check_bytes(buf, nbytes);                                                                                      \
        check_arguments(n, given);                                                                                     \
    }                                                                                                                  \
    static void long_back_##n(void *token, void *buf, size_t nbytes P##n) {                                            \
        CHECK((char *)buf == own + 16);                                                                                \
        medium_back_##n(token, buf, nbytes N##n);                                                                      \
        memset(own, 0, sizeof own);                                                                                    \
    }                                                                                                                  \
    static void got_##n(void *token, void *buf, size_t nbytes P##n) {                                                  \
        CHECK((char *)buf == own + 32);                                                                                \
        medium_back_##n(token, buf, nbytes N##n);                                                                      \
        memset(own, 0, sizeof own);                                                                                    \
    }                                                                                                                  \
    static void short_##n(void *token P##n) {                                                                          \
        short_back_##n(token N##n);                                                                                    \
        AM_Safe(AM_Reply##n(token, SHORT_BACK N##n));                                                                  \
    }                                                                                                                  \
    static void medium_##n(void *token, void *buf, size_t nbytes P##n) {                                               \
        medium_back_##n(token, buf, nbytes N##n);                                                                      \
        AM_Safe(AM_ReplyI##n(token, MEDIUM_BACK, buf, nbytes N##n));                                                   \
    }                                                                                                                  \
    static void long_##n(void *token, void *buf, size_t nbytes P##n) {                                                 \
        CHECK((char *)buf == segment + 8);                                                                             \
        medium_back_##n(token, buf, nbytes N##n);                                                                      \
        AM_Safe(AM_ReplyXfer##n(token, 16, LONG_BACK, buf, nbytes N##n));                                              \
    }                                                                                                                  \
    static void listed_##n(void *token, void *buf, size_t nbytes P##n) {                                               \
        check_bytes(buf, nbytes);                                                                                      \
        /* One message may be answered by one reply: each arrival takes its turn. */                                   \
        static int turn;                                                                                               \
        switch (turn++) {                                                                                              \
        case 0: AM_Safe(AMMPI_Reply(token, SHORT_BACK, n N##n)); break;                                                \
        case 1: AM_Safe(AMMPI_ReplyI(token, MEDIUM_BACK, buf, nbytes, n N##n)); break;                                 \
        default: AM_Safe(AMMPI_ReplyXfer(token, LONG_BACK, buf, nbytes, 16, n N##n)); break;                           \
        }                                                                                                              \
    }                                                                                                                  \
    static void calls_##n(void) {                                                                                      \
        AM_Safe(AM_SetHandler(b, SHORT, short_##n));                                                                   \
        AM_Safe(AM_SetHandler(b, MEDIUM, medium_##n));                                                                 \
        AM_Safe(AM_SetHandler(b, LONG, long_##n));                                                                     \
        AM_Safe(AM_SetHandler(b, LISTED, listed_##n));                                                                 \
        AM_Safe(AM_SetHandler(a, SHORT_BACK, short_back_##n));                                                         \
        AM_Safe(AM_SetHandler(a, MEDIUM_BACK, medium_back_##n));                                                       \
        AM_Safe(AM_SetHandler(a, LONG_BACK, long_back_##n));                                                           \
        AM_Safe(AM_SetHandler(a, GOT, got_##n));                                                                       \
        AM_Safe(AM_Request##n(a, 1, SHORT A##n));                                                                      \
        poll_for(2);                                                                                                   \
        AM_Safe(AM_RequestI##n(a, 1, MEDIUM, "bytes", 5 A##n));                                                        \
        poll_for(2);                                                                                                   \
        memset(segment, 0, sizeof segment);                                                                            \
        AM_Safe(AM_RequestXfer##n(a, 1, 8, LONG, "bytes", 5 A##n));                                                    \
        poll_for(2);                                                                                                   \
        memset(segment, 0, sizeof segment);                                                                            \
        AM_Safe(AM_RequestXferAsync##n(a, 1, 8, LONG, "bytes", 5 A##n));                                               \
        poll_for(2);                                                                                                   \
        AM_Safe(AM_GetXfer##n(a, 1, 8, GOT, 32, 5 A##n));                                                              \
        poll_for(1);                                                                                                   \
        AM_Safe(AM_GetXferAsync##n(a, 1, 8, GOT, 32, 5 A##n));                                                         \
        poll_for(1);                                                                                                   \
        AM_Safe(AMMPI_Request(a, 1, SHORT, n A##n));                                                                   \
        poll_for(2);                                                                                                   \
        AM_Safe(AMMPI_RequestXfer(a, 1, LONG, "bytes", 5, 8, 1, n A##n));                                              \
        poll_for(2);                                                                                                   \
        for (int turn = 0; turn < 3; turn++) {                                                                         \
            AM_Safe(AMMPI_RequestI(a, 1, LISTED, "bytes", 5, n A##n));                                                 \
            poll_for(1);                                                                                               \
        }                                                                                                              \
    }

#define EACH(act)                                                                                                      \
    act(0) act(1) act(2) act(3) act(4) act(5) act(6) act(7) act(8) act(9) act(10) act(11) act(12) act(13) act(14)     \
        act(15) act(16)
EACH(NUMBERED)
#define CALLS(n) calls_##n();

int main(void) {
    en_t name_a, name_b;
    int entry;
    watchdog(60);
    AM_Safe(AM_Init());
    AM_Safe(AM_AllocateBundle(AM_SEQ, &bundle));
    AM_Safe(AM_AllocateEndpoint(bundle, &a, &name_a));
    AM_Safe(AM_AllocateEndpoint(bundle, &b, &name_b));
    AM_Safe(AMMPI_SetEndpointCommunicator(NULL));
    AM_Safe(AM_SetTag(a, 3));
    AM_Safe(AM_SetTag(b, 7));
    /* With a tag that is none of b's, until it is changed. */
    AM_Safe(AMMPI_Map(a, 1, &name_b, 8));
    AM_Safe(AMMPI_SetTranslationTag(a, 1, 7));
    GIVES(AMMPI_SetTranslationTag(a, 2, 7), AM_ERR_RESOURCE);
    AM_Safe(AMMPI_MapAny(b, &entry, &name_a, 3));
    CHECK(entry == 0);
    AM_Safe(AM_SetSeg(a, own, sizeof own));
    AM_Safe(AM_SetSeg(b, segment, sizeof segment));
    EACH(CALLS)
    CHECK(arrived == 17 * (2 * 6 + 2 + 3));
    AM_Safe(AM_Terminate());
    puts("calls of each number of arguments: well");
    return 0;
}
