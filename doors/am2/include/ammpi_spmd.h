/* The start-up of AM programs of which every rank runs the same text, under `towpath run`. */
#ifndef TOWPATH_AMMPI_SPMD_H
#define TOWPATH_AMMPI_SPMD_H

#include <stdlib.h>

#include "ammpi.h"

AMMPI_BEGIN_EXTERNC

/* Calls AM_Init, and makes a bundle and an endpoint whose table leads to all ranks: entry r is rank r, itself
 * included. Waits until all ranks have called it; returns AM_ERR_RESOURCE, and leaves nothing behind, if a rank has
 * died, or has ended without it. Set the handlers, then call AMMPI_SPMDBarrier before the first message. The arguments
 * of the program stay as they are; depth may be 0; *number, if not NULL, is one that all ranks get and that other jobs
 * do not have. A program that no launcher has started is a job of one rank.
 *
 * It may be called as (argc, argv, depth, number, eb, ep), without the number, or without number and depth. */
int AMMPI_SPMDStartup(int *argc, char ***argv, int depth, uint64_t *number, eb_t *eb, ep_t *ep);
#define AMMPI_SPMDStartup(...)                                                                                         \
    AM2_STARTUP_(__VA_ARGS__, AM2_STARTUP_6_, AM2_STARTUP_5_, AM2_STARTUP_4_, 0)(__VA_ARGS__)
#define AM2_STARTUP_(a, b, c, d, e, f, name, ...) name
#define AM2_STARTUP_6_(argc, argv, depth, number, eb, ep) (AMMPI_SPMDStartup)((argc), (argv), (depth), (number), (eb), (ep))
#define AM2_STARTUP_5_(argc, argv, depth, eb, ep) (AMMPI_SPMDStartup)((argc), (argv), (depth), NULL, (eb), (ep))
#define AM2_STARTUP_4_(argc, argv, eb, ep) (AMMPI_SPMDStartup)((argc), (argv), 0, NULL, (eb), (ep))

/* Ends the job, also after AM_Terminate, or when the endpoint has been freed. With code 0 the rank polls until all
 * ranks have called it or AM_Terminate, or have ended: they may need its answers. With another code the job ends now:
 * each rank ends at its next poll, wait or barrier.
 *
 * The launcher gets the lower eight bits of the code. A code other than 0 whose lower eight bits are 0 (256, -256) is
 * 255, for callbacks, too.
 *
 * Each rank calls its exit callback with the code, that of the first rank that gave one other than 0, writes what its
 * streams hold, leaves the world, and calls AMMPI_SPMDkillmyprocess (at first _exit). SIGHUP, SIGINT and SIGTERM end
 * the rank in this way, too, with 128 and the signal's number, unless the program has its own handler; the second one
 * ends the process at once, and the first one does after AM_Terminate, and in a forked child. */
int AMMPI_SPMDExit(int code);
int AMMPI_SPMDSetExitCallback(void (*function)(int));
extern void (*AMMPI_SPMDkillmyprocess)(int);

int AMMPI_SPMDNumProcs(void);
int AMMPI_SPMDMyProc(void);
int AMMPI_SPMDIsWorker(char **argv);
/* Returns 1; the level is "MPI_THREAD_SERIALIZED": one thread at a time, unless a bundle is one of AM_PAR. */
int AMMPI_SPMDSetThreadMode(int uses_threads, const char **level, int *argc, char ***argv);

/* Waits for all ranks, and polls. AM_ERR_RESOURCE if a rank has died: the next barrier is among the others; also if
 * the program has freed the endpoint of AMMPI_SPMDStartup. AM_ERR_NOT_INIT after AM_Terminate. */
int AMMPI_SPMDBarrier(void);
/* Hands bytes of all ranks, or of one, to all. All ranks call them in one order. Not across hosts. */
int AMMPI_SPMDAllGather(const void *source, void *dest, size_t bytes);
int AMMPI_SPMDBroadcast(void *buffer, size_t bytes, int root);

#define AMX_SPMDStartup AMMPI_SPMDStartup
#define AMX_SPMDExit AMMPI_SPMDExit
#define AMX_SPMDSetExitCallback AMMPI_SPMDSetExitCallback
#define AMX_SPMDkillmyprocess AMMPI_SPMDkillmyprocess
#define AMX_SPMDNumProcs AMMPI_SPMDNumProcs
#define AMX_SPMDMyProc AMMPI_SPMDMyProc
#define AMX_SPMDIsWorker(argv) AMMPI_SPMDIsWorker(argv)
#define AMX_SPMDBarrier AMMPI_SPMDBarrier
#define AMX_SPMDAllGather AMMPI_SPMDAllGather
#define AMX_SPMDBroadcast AMMPI_SPMDBroadcast
#define AMX_SPMDgetenvMaster getenv

AMMPI_END_EXTERNC
#endif
