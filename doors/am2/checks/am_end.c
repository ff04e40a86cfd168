/* am_end exit|signal|lost|fatal: the job ends by a rank's code, by a signal; a rank dies, and the others go on; the
 * program gives up. */
#include "am_check.h"

enum { NEVER = 1, HOLD };

/* What comes back, in this order. */
static const op_t opcodes[] = {AM_REQUEST_M, AM_GET_XFER_M, AM_REQUEST_M, AM_GET_XFER_M};

static eb_t eb;
static ep_t ep;
static int rank, expected, back;

static void told(int code) {
    if (code != expected) _exit(90);
    printf("rank %d ends with %d\n", rank, code); /* in the stream's buffer until the end writes it */
}
static void ended(int code) { _exit(code == expected ? 7 : 91); }
static void never(void *token) { (void)token; }
static void hold(void *token) {
    (void)token;
    raise(SIGKILL);
}
static void returned(int status, op_t opcode, void *token) {
    tag_t tag;
    AM_Safe(AM_GetMsgTag(token, &tag));
    CHECK(status == EUNREACHABLE && opcode == opcodes[back]);
    back++;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "exit";
    watchdog(120);
    if (strcmp(what, "fatal") == 0) {
        const char *level = NULL;
        CHECK(AMX_SPMDIsWorker(argv) == 1);
        CHECK(AMMPI_SPMDSetThreadMode(1, &level, &argc, &argv) == 1 && strcmp(level, "MPI_THREAD_SERIALIZED") == 0);
        AMX_FatalErr("%d of %d parts are missing", 2, 3);
    }
    AM_Safe(AMMPI_SPMDStartup(&argc, &argv, 0, NULL, &eb, &ep));
    rank = AMMPI_SPMDMyProc();
    AM_Safe(AM_SetHandler(ep, NEVER, never));
    AM_Safe(AM_SetHandler(ep, HOLD, hold));
    AM_Safe(AM_SetHandler(ep, 0, returned));
    AM_Safe(AMMPI_SPMDSetExitCallback(told));
    AMMPI_SPMDkillmyprocess = ended;
    AM_Safe(AM_SetEventMask(eb, AM_NOTEMPTY));
    expected = strcmp(what, "exit") == 0 ? 41 : strcmp(what, "signal") == 0 ? 128 + SIGTERM : 0;
    AM_Safe(AMMPI_SPMDBarrier());
    if (expected == 41) {
        if (rank == 1) return AMMPI_SPMDExit(41);
        if (rank == 0) AM_Safe(AM_WaitSema(eb));
        for (;;) AM_Safe(AM_Poll(eb));
    }
    if (expected != 0) {
        raise(SIGTERM);
        AM_Safe(AM_WaitSema(eb));
        return 1;
    }
    /* Rank 1 dies in a handler, of a request of rank 0: that comes back, and so do later ones. Gets do, too. */
    if (rank == 0) {
        AM_Safe(AM_Request0(ep, 1, HOLD));
        AM_Safe(AM_GetXfer0(ep, 1, 0, NEVER, 0, 0));
        while (back < 2) AM_Safe(AM_Poll(eb));
        AM_Safe(AM_Request0(ep, 1, NEVER));
        AM_Safe(AM_GetXfer0(ep, 1, 0, NEVER, 0, 0));
        while (back < 4) AM_Safe(AM_Poll(eb));
        puts("four messages came back from a dead rank");
    }
    while (rank == 1) AM_Safe(AM_Poll(eb));
    return AMMPI_SPMDExit(0);
}
