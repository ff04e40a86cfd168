/* am_bulk: transfers around a ring, into segments, into any memory, and gathered by all. */
#include "am_check.h"

enum { PUT = 1, STORED, GET, GOT, FETCHED };
enum { PIECE = 100000, PIECES = 8 };

static eb_t eb;
static ep_t ep;
static unsigned char *segment, *source;
static int rank, stored, acknowledged;
static uint64_t *got;
static uint64_t cell;

static void put(void *token, void *buf, size_t nbytes, int piece, int salt) {
    const unsigned char *bytes = buf;
    CHECK(nbytes == PIECE && bytes == segment + (size_t)piece * PIECE);
    for (size_t at = 0; at < nbytes; at += 997) CHECK(bytes[at] == (unsigned char)(at + (size_t)(salt + piece)));
    AM_Safe(AM_Reply1(token, STORED, piece));
    stored++;
}
static void was_stored(void *token, int piece) {
    (void)token, (void)piece;
    acknowledged++;
}
/* What this rank has put into its right neighbour's segment lies in the second half of its own. */
static void fetched(void *token, void *buf, size_t nbytes, int first) {
    const unsigned char *bytes = buf;
    (void)token;
    CHECK(bytes == segment + (size_t)(PIECES + first) * PIECE && nbytes % PIECE == 0);
    for (size_t at = 0; at < nbytes; at += 997) {
        CHECK(bytes[at] == (unsigned char)(at % PIECE + (size_t)rank + (size_t)first + at / PIECE));
    }
    acknowledged++;
}
/* A word at an address, of any rank: the requester's own address comes along, in halves. */
static void get(void *token, int high, int low, int to_high, int to_low) {
    uintptr_t at = (uintptr_t)(uint32_t)high << 32 | (uint32_t)low;
    AM_Safe(AM_ReplyI2(token, GOT, (void *)at, sizeof(uint64_t), to_high, to_low));
}
static void was_got(void *token, void *buf, size_t nbytes, int to_high, int to_low) {
    (void)token;
    memcpy((void *)((uintptr_t)(uint32_t)to_high << 32 | (uint32_t)to_low), buf, nbytes);
    acknowledged++;
}

int main(int argc, char **argv) {
    watchdog(120);
    AMMPI_VerboseErrors = 1;
    AM_Safe(AMMPI_SPMDStartup(&argc, &argv, 4, &eb, &ep));
    rank = AMMPI_SPMDMyProc();
    int ranks = AMMPI_SPMDNumProcs(), right = (rank + 1) % ranks;
    segment = calloc(2 * PIECES, PIECE);
    source = malloc(PIECE);
    AM_Safe(AM_SetSeg(ep, segment, (uintptr_t)2 * PIECES * PIECE));
    AM_Safe(AM_SetHandler(ep, PUT, put));
    AM_Safe(AM_SetHandler(ep, STORED, was_stored));
    AM_Safe(AM_SetHandler(ep, GET, get));
    AM_Safe(AM_SetHandler(ep, GOT, was_got));
    AM_Safe(AM_SetHandler(ep, FETCHED, fetched));
    AM_Safe(AMMPI_SPMDBarrier());

    for (int piece = 0; piece < PIECES; piece++) {
        for (size_t at = 0; at < PIECE; at++) source[at] = (unsigned char)(at + (size_t)(rank + piece));
        if (piece % 2 == 0) {
            AM_Safe(AM_RequestXfer2(ep, right, (uintptr_t)piece * PIECE, PUT, source, PIECE, piece, rank));
        } else {
            int result;
            while ((result = AM_RequestXferAsync2(ep, right, (uintptr_t)piece * PIECE, PUT, source, PIECE, piece,
                        rank)) == AM_ERR_NOT_SENT) {
                AM_Safe(AM_Poll(eb));
            }
            AM_Safe(result);
        }
    }
    while (stored < PIECES || acknowledged < PIECES) AM_Safe(AM_Poll(eb));
    AM_Safe(AMMPI_SPMDBarrier());

    /* Gets, of all pieces and of one. */
    acknowledged = 0;
    AM_Safe(AM_GetXfer1(ep, right, 0, FETCHED, (uintptr_t)PIECES * PIECE, (size_t)PIECES * PIECE, 0));
    while (acknowledged < 1) AM_Safe(AM_Poll(eb));
    memset(segment + (size_t)PIECES * PIECE, 0, (size_t)PIECES * PIECE);
    AM_Safe(AM_GetXferAsync1(ep, right, (uintptr_t)3 * PIECE, FETCHED, (uintptr_t)(PIECES + 3) * PIECE, PIECE, 3));
    while (acknowledged < 2) AM_Safe(AM_Poll(eb));
    AM_Safe(AMMPI_SPMDBarrier());

    /* All memory is the segment: a transfer to an address. */
    uintptr_t *cells = calloc((size_t)ranks, sizeof *cells), mine = (uintptr_t)&cell;
    AM_Safe(AMMPI_SPMDAllGather(&mine, cells, sizeof mine));
    got = calloc((size_t)ranks, sizeof *got);
    cell = 1000 + (uint64_t)rank;
    AM_Safe(AMMPI_SPMDBarrier());
    acknowledged = 0;
    for (int other = 0; other < ranks; other++) {
        uintptr_t to = (uintptr_t)&got[other];
        AM_Safe(AM_Request4(ep, other, GET, (int)(cells[other] >> 32), (int)cells[other], (int)(to >> 32), (int)to));
    }
    while (acknowledged < ranks) AM_Safe(AM_Poll(eb));
    for (int other = 0; other < ranks; other++) CHECK(got[other] == 1000 + (uint64_t)other);

    /* More than one piece in what is gathered. */
    size_t bytes = 10001;
    unsigned char *own = malloc(bytes), *each = malloc(bytes * (size_t)ranks);
    memset(own, rank + 1, bytes);
    AM_Safe(AMMPI_SPMDAllGather(own, each, bytes));
    for (int other = 0; other < ranks; other++) {
        CHECK(each[(size_t)other * bytes] == other + 1 && each[(size_t)(other + 1) * bytes - 1] == other + 1);
    }
    AM_Safe(AMMPI_SPMDBroadcast(own, bytes, ranks - 1));
    CHECK(own[0] == ranks && own[bytes - 1] == ranks);
    GIVES(AMMPI_SPMDBroadcast(own, bytes, ranks), AM_ERR_BAD_ARG);
    AM_Safe(AMMPI_SPMDBarrier());
    return AMMPI_SPMDExit(0);
}
