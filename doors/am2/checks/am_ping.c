/* am_ping ROUNDS P|B: every rank sends to rank 0 and polls, or waits, for the answers. Then all values are added up. */
#include "am_check.h"

enum { PING = 1, PONG, ADD, STATISTICS };

static eb_t eb;
static ep_t ep;
static int left, ranks, total, values, gathered;
static ammpi_stats_t all;

static void ping(void *token, int round) {
    AM_Safe(AM_Reply1(token, PONG, round + 1));
    left--;
}
static void pong(void *token, int round) {
    (void)token, (void)round;
    left--;
}
static void add(void *token, int value) {
    int source;
    AM_Safe(AMMPI_GetSourceId(token, &source));
    CHECK(source == value);
    total += value;
    values++;
}
static void statistics(void *token, void *buf, size_t nbytes) {
    (void)token;
    CHECK(nbytes == sizeof all);
    AM_Safe(AMX_AggregateStatistics(&all, (const ammpi_stats_t *)buf));
    gathered++;
}

static void await(int polls) {
    if (!polls) {
        AM_Safe(AM_SetEventMask(eb, AM_NOTEMPTY));
        AM_Safe(AM_WaitSema(eb));
    }
    AM_Safe(AM_Poll(eb));
}

int main(int argc, char **argv) {
    uint64_t number, first;
    ammpi_stats_t mine;
    watchdog(120);
    AMX_VerboseErrors = 1;
    AM_Safe(AMX_SPMDStartup(&argc, &argv, 0, &number, &eb, &ep));
    int rank = AMX_SPMDMyProc(), rounds = argc > 1 ? atoi(argv[1]) : 1000, polls = argc < 3 || argv[2][0] != 'B';
    ranks = AMX_SPMDNumProcs();
    AM_Safe(AM_SetHandler(ep, PING, ping));
    AM_Safe(AM_SetHandler(ep, PONG, pong));
    AM_Safe(AM_SetHandler(ep, ADD, add));
    AM_Safe(AM_SetHandler(ep, STATISTICS, statistics));
    all = AMX_initial_stats;
    left = rank == 0 ? (ranks - 1) * rounds : rounds; /* before the barrier, in which pings may come */
    first = number;
    AM_Safe(AMX_SPMDBroadcast(&first, sizeof first, 0));
    CHECK(first == number && number != 0);
    AM_Safe(AMX_SPMDBarrier());

    for (int round = 0; rank != 0 && round < rounds; round++) AM_Safe(AM_Request1(ep, 0, PING, round));
    while (left > 0) await(polls);
    CHECK(left == 0);
    AM_Safe(AM_Request1(ep, 0, ADD, rank));
    while (rank == 0 && values < ranks) await(polls);
    CHECK(rank != 0 || total == ranks * (ranks - 1) / 2);
    AM_Safe(AMX_SPMDBarrier());
    AM_Safe(AMX_GetEndpointStatistics(ep, &mine));
    AM_Safe(AM_RequestI0(ep, 0, STATISTICS, &mine, sizeof mine));
    if (rank == 0) {
        while (gathered < ranks) await(polls);
        CHECK(all.RequestsSent[ammpi_Short] == (uint64_t)((ranks - 1) * rounds + ranks));
        CHECK(all.RepliesReceived[ammpi_Short] == (uint64_t)((ranks - 1) * rounds));
        AMX_DumpStatistics(stdout, &all, 1);
    }
    AM_Safe(AMX_SPMDBarrier());
    AMX_SPMDExit(0);
    return 1;
}
