/* Active Messages II as programs of GASNet's family use them: the names of AMMPI over Towpath's endpoints.
 *
 * Source-compatible: programs that were written for AMMPI compile unchanged and run under `towpath run`. docs/am2.md
 * says what differs. */
#ifndef TOWPATH_AMMPI_H
#define TOWPATH_AMMPI_H

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "am2.h"

#define AMMPI 1
#define AMMPI_LIBRARY_VERSION_MAJOR 2
#define AMMPI_LIBRARY_VERSION_MINOR 9
#define AMMPI_LIBRARY_VERSION 2.9
#define AMMPI_LIBRARY_VERSION_STR "2.9"

/* AM_MaxMedium() tells of the world that the process is in: one that a Rust program has made may have other blocks. The
 * depth of AMMPI_SPMDStartup may be any number from 0 on. */
#define AMMPI_MAX_SHORT 16
#define AMMPI_MAX_MEDIUM 32768
#define AMMPI_MAX_LONG 4194304
#define AMMPI_MAX_SEGLENGTH ((uintptr_t)-1)
#define AMMPI_MAX_NETWORKDEPTH 1024
#define AMMPI_INIT_NUMTRANSLATIONS 256
#define AMMPI_MAX_NUMHANDLERS 256
#define AMMPI_MAX_NUMTRANSLATIONS 65536
#define AMMPI_MAX_BUNDLES 255
#define AMMPI_MAX_SPMDPROCS 4096

#ifdef __cplusplus
#define AMMPI_BEGIN_EXTERNC extern "C" {
#define AMMPI_END_EXTERNC }
#else
#define AMMPI_BEGIN_EXTERNC
#define AMMPI_END_EXTERNC
#endif
#ifndef BEGIN_EXTERNC
#define BEGIN_EXTERNC AMMPI_BEGIN_EXTERNC
#define END_EXTERNC AMMPI_END_EXTERNC
#endif

AMMPI_BEGIN_EXTERNC

typedef uint32_t ammpi_node_t;
typedef am2_handler_t ammpi_handler_fn_t;
typedef int ammpi_eventmask_t;
typedef int ammpi_bundle_mode_t;

typedef enum { ammpi_Short = 0, ammpi_Medium = 1, ammpi_Long = 2, ammpi_NumCategories = 3 } ammpi_category_t;

/* Called before and after each handler; they make no calls. */
typedef void (*AMMPI_preHandlerCallback_t)(ammpi_category_t category, int is_request, int handler, void *token,
    void *buf, size_t nbytes, int numargs, uint32_t *args);
typedef void (*AMMPI_postHandlerCallback_t)(ammpi_category_t category, int is_request);
int AMMPI_SetHandlerCallbacks(ep_t ep, AMMPI_preHandlerCallback_t before, AMMPI_postHandlerCallback_t after);

/* Statistics of an endpoint. Latencies are not measured; data bytes are those of arguments and payloads, total bytes
 * count 64 more for each message. */
typedef struct {
    uint64_t RequestsSent[ammpi_NumCategories];
    uint64_t RepliesSent[ammpi_NumCategories];
    uint64_t RequestsReceived[ammpi_NumCategories];
    uint64_t RepliesReceived[ammpi_NumCategories];
    uint64_t ReturnedMessages;
    uint64_t RequestMinLatency;
    uint64_t RequestMaxLatency;
    uint64_t RequestSumLatency;
    uint64_t RequestDataBytesSent[ammpi_NumCategories];
    uint64_t ReplyDataBytesSent[ammpi_NumCategories];
    uint64_t RequestTotalBytesSent[ammpi_NumCategories];
    uint64_t ReplyTotalBytesSent[ammpi_NumCategories];
    uint64_t TotalBytesSent;
} ammpi_stats_t;
extern const ammpi_stats_t AMMPI_initial_stats;
int AMMPI_GetEndpointStatistics(ep_t ep, ammpi_stats_t *statistics);
int AMMPI_ResetEndpointStatistics(ep_t ep);
int AMMPI_AggregateStatistics(ammpi_stats_t *sum, const ammpi_stats_t *more);
/* Writes a table to a FILE *, if it is not NULL. Returns the text, which stays until the next call. */
const char *AMMPI_DumpStatistics(void *stream, const ammpi_stats_t *statistics, int of_all);

extern int AMMPI_SilentMode;

/* The entry of the translation table that leads to the message's sender. */
int AMMPI_GetSourceId(void *token, int *entry);
int AMMPI_SetTranslationTag(ep_t ep, int entry, tag_t tag);

/* All endpoints are in the world of the process. */
static inline int AMMPI_SetEndpointCommunicator(void *communicator) {
    (void)communicator;
    return AM_OK;
}
static inline int AMMPI_enEqual(en_t one, en_t other) { return one.number == other.number; }
static inline int AMMPI_Map(ep_t ep, int entry, const en_t *name, tag_t tag) { return AM_Map(ep, entry, *name, tag); }
static inline int AMMPI_MapAny(ep_t ep, int *entry, const en_t *name, tag_t tag) {
    return AM_MapAny(ep, entry, *name, tag);
}

static inline void AMMPI_FatalErr(const char *format, ...) {
    char sentence[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
    va_end(list);
    AM2_Fatal(sentence);
}

/* The six calls behind all requests and replies, with a list of arguments. A number of arguments that is impossible
 * is refused by the call behind. */
#define AM2_TAKE(count, list)                                                                                          \
    int32_t arguments_[16];                                                                                            \
    for (int at_ = 0; at_ < (count) && at_ < 16; at_++) arguments_[at_] = (int32_t)va_arg(list, int)

static inline int AMMPI_RequestVA(ep_t ep, ammpi_node_t entry, handler_t handler, int numargs, va_list list) {
    AM2_TAKE(numargs, list);
    return AM2_Request(ep, (int)entry, handler, numargs, arguments_);
}
static inline int AMMPI_RequestIVA(ep_t ep, ammpi_node_t entry, handler_t handler, const void *source, size_t nbytes,
    int numargs, va_list list) {
    AM2_TAKE(numargs, list);
    return AM2_RequestI(ep, (int)entry, handler, source, nbytes, numargs, arguments_);
}
static inline int AMMPI_RequestXferVA(ep_t ep, ammpi_node_t entry, handler_t handler, const void *source,
    size_t nbytes, uintptr_t offset, int async, int numargs, va_list list) {
    AM2_TAKE(numargs, list);
    return AM2_RequestXfer(ep, (int)entry, handler, source, nbytes, offset, async, numargs, arguments_);
}
static inline int AMMPI_ReplyVA(void *token, handler_t handler, int numargs, va_list list) {
    AM2_TAKE(numargs, list);
    return AM2_Reply(token, handler, numargs, arguments_);
}
static inline int AMMPI_ReplyIVA(
    void *token, handler_t handler, const void *source, size_t nbytes, int numargs, va_list list) {
    AM2_TAKE(numargs, list);
    return AM2_ReplyI(token, handler, source, nbytes, numargs, arguments_);
}
static inline int AMMPI_ReplyXferVA(void *token, handler_t handler, const void *source, size_t nbytes,
    uintptr_t offset, int numargs, va_list list) {
    AM2_TAKE(numargs, list);
    return AM2_ReplyXfer(token, handler, source, nbytes, offset, numargs, arguments_);
}

/* The same with the arguments themselves. */
#define AM2_PASS(call, ...)                                                                                            \
    va_list list_;                                                                                                     \
    va_start(list_, numargs);                                                                                          \
    int result_ = call(__VA_ARGS__, numargs, list_);                                                                   \
    va_end(list_);                                                                                                     \
    return result_

static inline int AMMPI_Request(ep_t ep, ammpi_node_t entry, handler_t handler, int numargs, ...) {
    AM2_PASS(AMMPI_RequestVA, ep, entry, handler);
}
static inline int AMMPI_RequestI(
    ep_t ep, ammpi_node_t entry, handler_t handler, const void *source, size_t nbytes, int numargs, ...) {
    AM2_PASS(AMMPI_RequestIVA, ep, entry, handler, source, nbytes);
}
static inline int AMMPI_RequestXfer(ep_t ep, ammpi_node_t entry, handler_t handler, const void *source, size_t nbytes,
    uintptr_t offset, int async, int numargs, ...) {
    AM2_PASS(AMMPI_RequestXferVA, ep, entry, handler, source, nbytes, offset, async);
}
static inline int AMMPI_Reply(void *token, handler_t handler, int numargs, ...) {
    AM2_PASS(AMMPI_ReplyVA, token, handler);
}
static inline int AMMPI_ReplyI(
    void *token, handler_t handler, const void *source, size_t nbytes, int numargs, ...) {
    AM2_PASS(AMMPI_ReplyIVA, token, handler, source, nbytes);
}
static inline int AMMPI_ReplyXfer(void *token, handler_t handler, const void *source, size_t nbytes, uintptr_t offset,
    int numargs, ...) {
    AM2_PASS(AMMPI_ReplyXferVA, token, handler, source, nbytes, offset);
}

/* The names that AM layers of this family share. */
#define AMX_VerboseErrors AMMPI_VerboseErrors
#define AMX_SilentMode AMMPI_SilentMode
#define AMX_FatalErr AMMPI_FatalErr
#define AMX_enEqual AMMPI_enEqual
#define AMX_SetTranslationTag AMMPI_SetTranslationTag
#define AMX_GetSourceId AMMPI_GetSourceId
#define AMX_SetHandlerCallbacks AMMPI_SetHandlerCallbacks
#define AMX_GetEndpointStatistics AMMPI_GetEndpointStatistics
#define AMX_ResetEndpointStatistics AMMPI_ResetEndpointStatistics
#define AMX_AggregateStatistics AMMPI_AggregateStatistics
#define AMX_DumpStatistics AMMPI_DumpStatistics
#define AMX_initial_stats AMMPI_initial_stats
#define amx_stats_t ammpi_stats_t
#define amx_handler_fn_t ammpi_handler_fn_t

AMMPI_END_EXTERNC
#endif
