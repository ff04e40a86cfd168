/* Active Messages II, over Towpath's endpoints.
 *
 * The calls are those of "Active Message Applications Programming Interface and Communication Subsystem Organization"
 * (Mainwaring & Culler 1996). docs/am2.md says how to compile and start programs, and what differs. Programs that
 * were written for AMMPI include ammpi.h instead.
 *
 * Every call returns AM_OK or one of the errors; AMMPI_VerboseErrors = 1 has the reason written to standard error. An
 * endpoint that a call names must exist: a handle that was freed is not recognised. A thread uses a bundle of AM_SEQ
 * alone; threads take turns in one of AM_PAR.
 *
 * A forked child calls AM_Init itself, and makes its own bundles and endpoints: before that its calls return
 * AM_ERR_NOT_INIT, and after it those with its parent's handles AM_ERR_BAD_ARG. A child that a rank of `towpath run`
 * has forked is no rank of the job: its AM_Init returns AM_ERR_RESOURCE. */
#ifndef TOWPATH_AM2_H
#define TOWPATH_AM2_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct am2_bundle *eb_t;   /* a bundle */
typedef struct am2_endpoint *ep_t; /* an endpoint */
typedef ep_t ea_t;
typedef struct { /* the name of an endpoint: opaque, to be passed on */
    uint64_t number; /* AM_Map refuses a name of another process's own world */
} en_t;
typedef uint64_t tag_t;
typedef uint8_t handler_t; /* the number of a handler: 1 to 255; 0 is told of messages that come back */
typedef int op_t;

/* A handler gets
 *   void h(void *token, int a0, ...)                            of a short message,
 *   void h(void *token, void *buf, size_t nbytes, int a0, ...)  of a medium one: a copy, until the handler returns,
 *                                                               and of a transfer: its place in the segment.
 * A program's own types of parameters are 32 bits each. A handler may reply once to a request, and ask: about its
 * token, and by AM_Get... and AM_Max... calls. AM_Init, AM_AllocateBundle, AM_SetTag, AM_SetEventMask,
 * AM_SetNumHandlers, AM_SetExpectedResources and AMMPI_SetHandlerCallbacks work there, too; AM_Poll does nothing.
 * Other calls with the handler's bundle, or with an endpoint of it, are refused with AM_ERR_IN_USE: requests and gets
 * first of all. Those with another bundle are forbidden, too, but that is not noticed.
 * Handler 0 is void h(int status, op_t opcode, void *token). The one of a new endpoint ends the program. */
typedef void (*am2_handler_t)(void);

/* Tags: an endpoint takes a message whose tag is its own; with AM_ALL every one, with AM_NONE none. */
#define AM_ALL ((tag_t)-1)
#define AM_NONE ((tag_t)0)

/* Bundles of one thread, and of several. */
#define AM_SEQ 0
#define AM_PAR 1
#define AM_NUM_BUNDLE_MODES 2

/* Events: bits of a mask. */
#define AM_NOEVENTS 0
#define AM_NOTEMPTY 1 /* a message can be polled */
#define AM_CANSEND 2  /* every mapped destination has space for a request */
#define AM_NUMEVENTMASKS 4

/* Results. */
#define AM_OK 0
#define AM_ERR_NOT_INIT 1 /* AM_Init was not called, or not since the fork */
#define AM_ERR_BAD_ARG 2  /* an argument makes no sense */
#define AM_ERR_RESOURCE 3 /* something limited has run out, or is not there */
#define AM_ERR_NOT_SENT 4 /* an asynchronous transfer can't go out now */
#define AM_ERR_IN_USE 5   /* the call was made in a handler, or the bytes of a get are under way */

/* Why a message came back: the status that handler 0 gets. */
#define EBADARGS 1        /* its parts make no sense together */
#define EBADENTRY 2       /* never here: such a request is refused with AM_ERR_BAD_ARG */
#define EBADTAG 3         /* the destination has another tag */
#define EBADHANDLER 4     /* the destination has no such handler */
#define EBADSEGOFF 5      /* the transfer's offset, or the get's, is beyond the destination's segment */
#define EBADLENGTH 6      /* the transfer, or the get, ends beyond the destination's segment */
#define EBADENDPOINT 7    /* the destination has been freed */
#define ECONGESTION 8     /* a process died with the lock of the destination's queue: no claim by default has one */
#define EUNREACHABLE 9    /* the destination's process died: whether it handled the message is unknown */
#define EREPLYREJECTED 10 /* a reply to an endpoint that can't take it */

/* Which call sent it: the opcode that handler 0 gets. */
#define AM_REQUEST_M 1
#define AM_REQUEST_IM 2
#define AM_REQUEST_XFER_M 3
#define AM_REPLY_M 4
#define AM_REPLY_IM 5
#define AM_REPLY_XFER_M 6
#define AM_GET_XFER_M 7

/* Begin and end. AM_Init joins the world of `towpath run`, or makes one of this process alone, with 16 endpoints.
 * The last AM_Terminate of as many frees all bundles and leaves the world. */
int AM_Init(void);
int AM_Terminate(void);

/* Limits. */
int AM_MaxShort(void);  /* arguments of a message: 16 */
int AM_MaxMedium(void); /* bytes of a medium message: a block of the world, 32 KiB unless it was made otherwise */
int AM_MaxLong(void);   /* bytes of a transfer: 4 MiB */
int AM_MaxNumHandlers(void);
int AM_MaxNumTranslations(int *entries);
int AM_MaxSegLength(uintptr_t *bytes);

/* Bundles and endpoints. Endpoints end with their bundle. A new endpoint's tag is AM_NONE. */
int AM_AllocateBundle(int kind, eb_t *bundle);
int AM_FreeBundle(eb_t bundle);
int AM_AllocateEndpoint(eb_t bundle, ep_t *ep, en_t *name);
int AM_FreeEndpoint(ep_t ep);
int AM_MoveEndpoint(ep_t ep, eb_t from, eb_t to);
int AM_SetExpectedResources(ep_t ep, int endpoints, int outstanding_requests); /* checks its arguments only */

/* The segment, into which transfers go: any memory of the process, also all of it (NULL, (uintptr_t)-1). While a
 * thread polls or sends, no other thread uses the bytes that messages to the endpoint name. */
int AM_SetSeg(ep_t ep, void *address, uintptr_t bytes);
int AM_GetSeg(ep_t ep, void **address, uintptr_t *bytes);
int AM_SetTag(ep_t ep, tag_t tag);
int AM_GetTag(ep_t ep, tag_t *tag);

/* The translation table: the entries by which requests name their destinations, and the tags that these show. */
int AM_Map(ep_t ep, int entry, en_t name, tag_t tag); /* AM_ERR_RESOURCE if the entry is in use */
int AM_MapAny(ep_t ep, int *entry, en_t name, tag_t tag);
int AM_UnMap(ep_t ep, int entry);
int AM_GetTranslationInuse(ep_t ep, int entry); /* AM_OK if it is in use, otherwise AM_ERR_RESOURCE */
int AM_GetTranslationTag(ep_t ep, int entry, tag_t *tag);
int AM_GetTranslationName(ep_t ep, int entry, en_t *name);
int AM_GetNumTranslations(ep_t ep, int *entries);
int AM_SetNumTranslations(ep_t ep, int entries); /* 256 at first */

/* Handlers. */
int AM_SetHandler(ep_t ep, handler_t handler, am2_handler_t function);
int AM_SetHandlerAny(ep_t ep, handler_t *handler, am2_handler_t function);
int AM_GetNumHandlers(ep_t ep, int *handlers);
int AM_SetNumHandlers(ep_t ep, int handlers);
#define AM_SetHandler(ep, handler, function) AM_SetHandler((ep), (handler), (am2_handler_t)(function))
#define AM_SetHandlerAny(ep, handler, function) AM_SetHandlerAny((ep), (handler), (am2_handler_t)(function))

/* What a handler may ask. Of a message that came back the source is the endpoint that it was meant for. */
int AM_GetSourceEndpoint(void *token, en_t *name);
int AM_GetDestEndpoint(void *token, ep_t *ep);
int AM_GetMsgTag(void *token, tag_t *tag);
/* Beyond the specification, for handler 0: the handler that the message was meant for, and its arguments (16 places). */
int AM2_GetReturned(void *token, handler_t *handler, int32_t *arguments, int *count);

/* Polling, and waiting for an event of the mask. Waiting delivers nothing. */
int AM_Poll(eb_t bundle);
int AM_GetEventMask(eb_t bundle, int *mask);
int AM_SetEventMask(eb_t bundle, int mask);
int AM_WaitSema(eb_t bundle);

/* Requests. They wait for space, and poll the bundle meanwhile. */
int AM_Request0(ep_t ep, int entry, handler_t handler);
int AM_Request1(ep_t ep, int entry, handler_t handler, int a0);
int AM_Request2(ep_t ep, int entry, handler_t handler, int a0, int a1);
int AM_Request3(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2);
int AM_Request4(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3);
int AM_Request5(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4);
int AM_Request6(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5);
int AM_Request7(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6);
int AM_Request8(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7);
int AM_Request9(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8);
int AM_Request10(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8, int a9);
int AM_Request11(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8, int a9, int a10);
int AM_Request12(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8, int a9, int a10, int a11);
int AM_Request13(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8, int a9, int a10, int a11, int a12);
int AM_Request14(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8, int a9, int a10, int a11, int a12, int a13);
int AM_Request15(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8, int a9, int a10, int a11, int a12, int a13, int a14);
int AM_Request16(ep_t ep, int entry, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5,
    int a6, int a7, int a8, int a9, int a10, int a11, int a12, int a13, int a14, int a15);

int AM_RequestI0(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes);
int AM_RequestI1(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0);
int AM_RequestI2(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1);
int AM_RequestI3(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1,
    int a2);
int AM_RequestI4(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1,
    int a2, int a3);
int AM_RequestI5(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1,
    int a2, int a3, int a4);
int AM_RequestI6(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1,
    int a2, int a3, int a4, int a5);
int AM_RequestI7(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1,
    int a2, int a3, int a4, int a5, int a6);
int AM_RequestI8(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1,
    int a2, int a3, int a4, int a5, int a6, int a7);
int AM_RequestI9(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0, int a1,
    int a2, int a3, int a4, int a5, int a6, int a7, int a8);
int AM_RequestI10(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0,
    int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9);
int AM_RequestI11(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0,
    int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10);
int AM_RequestI12(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0,
    int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11);
int AM_RequestI13(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0,
    int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12);
int AM_RequestI14(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0,
    int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12,
    int a13);
int AM_RequestI15(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0,
    int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12,
    int a13, int a14);
int AM_RequestI16(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int a0,
    int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12,
    int a13, int a14, int a15);

int AM_RequestXfer0(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes);
int AM_RequestXfer1(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0);
int AM_RequestXfer2(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1);
int AM_RequestXfer3(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2);
int AM_RequestXfer4(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3);
int AM_RequestXfer5(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4);
int AM_RequestXfer6(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5);
int AM_RequestXfer7(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6);
int AM_RequestXfer8(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7);
int AM_RequestXfer9(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8);
int AM_RequestXfer10(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9);
int AM_RequestXfer11(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10);
int AM_RequestXfer12(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11);
int AM_RequestXfer13(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12);
int AM_RequestXfer14(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12, int a13);
int AM_RequestXfer15(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12, int a13, int a14);
int AM_RequestXfer16(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12, int a13, int a14, int a15);

/* Transfers that return AM_ERR_NOT_SENT where they would have to wait. The source may be reused on return. */
int AM_RequestXferAsync0(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes);
int AM_RequestXferAsync1(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0);
int AM_RequestXferAsync2(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1);
int AM_RequestXferAsync3(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2);
int AM_RequestXferAsync4(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3);
int AM_RequestXferAsync5(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4);
int AM_RequestXferAsync6(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5);
int AM_RequestXferAsync7(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6);
int AM_RequestXferAsync8(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7);
int AM_RequestXferAsync9(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8);
int AM_RequestXferAsync10(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9);
int AM_RequestXferAsync11(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10);
int AM_RequestXferAsync12(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11);
int AM_RequestXferAsync13(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12);
int AM_RequestXferAsync14(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12, int a13);
int AM_RequestXferAsync15(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12, int a13, int a14);
int AM_RequestXferAsync16(ep_t ep, int entry, uintptr_t offset, handler_t handler, const void *source,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10, int a11, int a12, int a13, int a14, int a15);

/* Replies. While they wait for space, only replies are polled. */
int AM_Reply0(void *token, handler_t handler);
int AM_Reply1(void *token, handler_t handler, int a0);
int AM_Reply2(void *token, handler_t handler, int a0, int a1);
int AM_Reply3(void *token, handler_t handler, int a0, int a1, int a2);
int AM_Reply4(void *token, handler_t handler, int a0, int a1, int a2, int a3);
int AM_Reply5(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4);
int AM_Reply6(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5);
int AM_Reply7(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6);
int AM_Reply8(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7);
int AM_Reply9(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8);
int AM_Reply10(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8, int a9);
int AM_Reply11(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8, int a9, int a10);
int AM_Reply12(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8, int a9, int a10, int a11);
int AM_Reply13(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8, int a9, int a10, int a11, int a12);
int AM_Reply14(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8, int a9, int a10, int a11, int a12, int a13);
int AM_Reply15(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8, int a9, int a10, int a11, int a12, int a13, int a14);
int AM_Reply16(void *token, handler_t handler, int a0, int a1, int a2, int a3, int a4, int a5, int a6,
    int a7, int a8, int a9, int a10, int a11, int a12, int a13, int a14, int a15);

int AM_ReplyI0(void *token, handler_t handler, const void *source, size_t bytes);
int AM_ReplyI1(void *token, handler_t handler, const void *source, size_t bytes, int a0);
int AM_ReplyI2(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1);
int AM_ReplyI3(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2);
int AM_ReplyI4(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3);
int AM_ReplyI5(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4);
int AM_ReplyI6(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5);
int AM_ReplyI7(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6);
int AM_ReplyI8(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7);
int AM_ReplyI9(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8);
int AM_ReplyI10(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8, int a9);
int AM_ReplyI11(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10);
int AM_ReplyI12(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11);
int AM_ReplyI13(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12);
int AM_ReplyI14(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12, int a13);
int AM_ReplyI15(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12, int a13,
    int a14);
int AM_ReplyI16(void *token, handler_t handler, const void *source, size_t bytes, int a0, int a1, int a2,
    int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12, int a13, int a14,
    int a15);

int AM_ReplyXfer0(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes);
int AM_ReplyXfer1(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes, int a0);
int AM_ReplyXfer2(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1);
int AM_ReplyXfer3(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2);
int AM_ReplyXfer4(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3);
int AM_ReplyXfer5(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4);
int AM_ReplyXfer6(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5);
int AM_ReplyXfer7(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6);
int AM_ReplyXfer8(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7);
int AM_ReplyXfer9(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8);
int AM_ReplyXfer10(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9);
int AM_ReplyXfer11(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10);
int AM_ReplyXfer12(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11);
int AM_ReplyXfer13(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11,
    int a12);
int AM_ReplyXfer14(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11,
    int a12, int a13);
int AM_ReplyXfer15(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11,
    int a12, int a13, int a14);
int AM_ReplyXfer16(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes,
    int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11,
    int a12, int a13, int a14, int a15);

/* Gets: bytes at an offset of the remote endpoint's segment are copied to an offset of the endpoint's own one; then the
 * handler runs here, as that of a transfer. They wait for space for the request only; the asynchronous ones return
 * AM_ERR_NOT_SENT instead. AM_ERR_BAD_ARG: the bytes have no place in the endpoint's own segment, or are more than
 * AM_MaxLong(). A get whose bytes are not there comes back with EBADSEGOFF or EBADLENGTH; one whose handler is missing
 * here with EBADHANDLER. The segment can't be changed until all gets have ended. */
int AM_GetXfer0(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes);
int AM_GetXfer1(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0);
int AM_GetXfer2(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1);
int AM_GetXfer3(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2);
int AM_GetXfer4(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3);
int AM_GetXfer5(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4);
int AM_GetXfer6(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5);
int AM_GetXfer7(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6);
int AM_GetXfer8(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7);
int AM_GetXfer9(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8);
int AM_GetXfer10(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9);
int AM_GetXfer11(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10);
int AM_GetXfer12(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11);
int AM_GetXfer13(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12);
int AM_GetXfer14(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12, int a13);
int AM_GetXfer15(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12, int a13, int a14);
int AM_GetXfer16(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12, int a13, int a14, int a15);

int AM_GetXferAsync0(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes);
int AM_GetXferAsync1(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0);
int AM_GetXferAsync2(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1);
int AM_GetXferAsync3(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2);
int AM_GetXferAsync4(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3);
int AM_GetXferAsync5(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4);
int AM_GetXferAsync6(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5);
int AM_GetXferAsync7(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6);
int AM_GetXferAsync8(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7);
int AM_GetXferAsync9(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8);
int AM_GetXferAsync10(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9);
int AM_GetXferAsync11(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9,
    int a10);
int AM_GetXferAsync12(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11);
int AM_GetXferAsync13(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12);
int AM_GetXferAsync14(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12, int a13);
int AM_GetXferAsync15(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12, int a13, int a14);
int AM_GetXferAsync16(ep_t ep, int entry, uintptr_t source_offset, handler_t handler, uintptr_t offset,
    size_t bytes, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10,
    int a11, int a12, int a13, int a14, int a15);

/* Beyond the specification: the number of arguments is known at run time only. */
int AM2_Request(ep_t ep, int entry, handler_t handler, int count, const int32_t *arguments);
int AM2_RequestI(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, int count,
    const int32_t *arguments);
int AM2_RequestXfer(ep_t ep, int entry, handler_t handler, const void *source, size_t bytes, uintptr_t offset,
    int asynchronous, int count, const int32_t *arguments);
int AM2_GetXfer(ep_t ep, int entry, handler_t handler, uintptr_t source_offset, size_t bytes, uintptr_t offset,
    int asynchronous, int count, const int32_t *arguments);
int AM2_Reply(void *token, handler_t handler, int count, const int32_t *arguments);
int AM2_ReplyI(void *token, handler_t handler, const void *source, size_t bytes, int count, const int32_t *arguments);
int AM2_ReplyXfer(void *token, handler_t handler, const void *source, size_t bytes, uintptr_t offset, int count,
    const int32_t *arguments);

/* Ends the program with a sentence. */
void AM2_Fatal(const char *sentence);

/* Not 0: failed calls write why to standard error. */
extern int AMMPI_VerboseErrors;

#ifdef __cplusplus
}
#endif
#endif
