/* Round trips, for examples/am2_cost.rs, which loads this as a shared library beside libtowpath-am.so. */
#include <ammpi_spmd.h>

enum { PING = 1, PONG };

static eb_t eb;
static ep_t ep;
static uint64_t pings, pongs, served;

static void ping(void *token, int number) {
    AM_Reply1(token, PONG, number);
    pings++;
}
static void pong(void *token, int number) {
    (void)token, (void)number;
    pongs++;
}

int cost_start(void) {
    if (AMMPI_SPMDStartup(NULL, NULL, &eb, &ep) != AM_OK) return 1;
    AM_SetHandler(ep, PING, ping);
    AM_SetHandler(ep, PONG, pong);
    return AMMPI_SPMDBarrier();
}
/* Asks a rank, and waits for each answer. */
void cost_ask(int rank, uint64_t rounds) {
    for (uint64_t until = pongs + rounds; pongs < until;) {
        uint64_t before = pongs;
        AM_Request1(ep, rank, PING, (int)before);
        while (pongs == before) AM_Poll(eb);
    }
}
/* Answers so many questions. The first one of the next call may have come with the last of this one. */
void cost_answer(uint64_t rounds) {
    served += rounds;
    while (pings < served) AM_Poll(eb);
}
void cost_end(void) { AMMPI_SPMDExit(0); }
