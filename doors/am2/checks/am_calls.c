/* Every call of am2.h by one process: its results, its errors, and each message that comes back there. */
#include "am_check.h"

enum { SUM = 1, ANSWER, MEDIUM, LONG, NOWHERE, BEYOND, GOT };

static ep_t a, b;
static eb_t bundle;
static en_t name_a, name_b;
static int answers, back_status, back_opcode;
static char segment[64], own[16];

/* AMMPI's constants, where only constants may be. */
static char largest_medium[AMMPI_MAX_MEDIUM];
static const int translations[AMMPI_INIT_NUMTRANSLATIONS + AMMPI_MAX_NETWORKDEPTH];
static const int kinds[AM_NUM_BUNDLE_MODES] = {AM_SEQ, AM_PAR};
static const int masks[AM_NUMEVENTMASKS] = {AM_NOEVENTS, AM_NOTEMPTY, AM_CANSEND, AM_NOTEMPTY | AM_CANSEND};

static void returned(int status, op_t opcode, void *token) {
    handler_t handler;
    int32_t arguments[16];
    int count;
    en_t meant_for;
    AM_Safe(AM2_GetReturned(token, &handler, arguments, &count));
    AM_Safe(AM_GetSourceEndpoint(token, &meant_for));
    CHECK(AMMPI_enEqual(meant_for, name_b));
    GIVES(AM_Reply0(token, ANSWER), AM_ERR_BAD_ARG);
    back_status = status;
    back_opcode = opcode;
}

static void sum(void *token, int a0, int a1, int a2, int a3) {
    en_t source;
    ep_t here;
    tag_t tag;
    int entry;
    AM_Safe(AM_GetSourceEndpoint(token, &source));
    AM_Safe(AM_GetDestEndpoint(token, &here));
    AM_Safe(AM_GetMsgTag(token, &tag));
    AM_Safe(AMMPI_GetSourceId(token, &entry));
    CHECK(AMMPI_enEqual(source, name_a) && here == b && tag == 7 && entry == 5);
    GIVES(AM_Request0(b, 5, SUM), AM_ERR_IN_USE);
    GIVES(AM_SetHandler(b, SUM, sum), AM_ERR_IN_USE);
    GIVES(AM_FreeEndpoint(b), AM_ERR_IN_USE);
    AM_Safe(AM_Reply1(token, ANSWER, a0 + a1 + a2 + a3));
    GIVES(AM_Reply1(token, ANSWER, 0), AM_ERR_BAD_ARG);
}
static void answer(void *token, int value) {
    GIVES(AM_Reply0(token, ANSWER), AM_ERR_BAD_ARG);
    CHECK(value == 10);
    answers++;
}
static void medium(void *token, void *buf, size_t nbytes, int a0) {
    (void)token;
    CHECK(nbytes == 5 && memcmp(buf, "bytes", 5) == 0 && a0 == -3);
    answers++;
}
static void transfer(void *token, void *buf, size_t nbytes, int a0) {
    CHECK(buf == segment + 8 && nbytes == 5 && memcmp(buf, "bytes", 5) == 0 && a0 == 4);
    AM_Safe(AM_ReplyI1(token, MEDIUM, buf, nbytes, -3));
    answers++;
}
static void got(void *token, void *buf, size_t nbytes, int a0) {
    en_t source;
    AM_Safe(AM_GetSourceEndpoint(token, &source));
    CHECK(AMMPI_enEqual(source, name_b) && buf == own + 2 && nbytes == 5 && a0 == 6 && memcmp(buf, "bytes", 5) == 0);
    GIVES(AM_Reply0(token, ANSWER), AM_ERR_BAD_ARG);
    GIVES(AM_GetXfer0(a, 1, 8, GOT, 2, 5), AM_ERR_IN_USE);
    memset(own, 0, sizeof own);
    answers++;
}
static void nowhere(void *token) { AM_Safe(AM_Reply0(token, 200)); }
static void beyond(void *token) { AM_Safe(AM_ReplyXfer0(token, 60, ANSWER, "bytes", 5)); }

static void poll_for(int more) {
    for (int until = answers + more; answers < until;) {
        AM_Safe(AM_SetEventMask(bundle, AM_NOTEMPTY));
        AM_Safe(AM_WaitSema(bundle));
        AM_Safe(AM_Poll(bundle));
    }
}
static void comes_back(int status, int opcode) {
    for (back_status = 0; back_status == 0;) AM_Safe(AM_Poll(bundle));
    CHECK(back_status == status && back_opcode == opcode);
}

static void before(ammpi_category_t category, int is_request, int handler, void *token, void *buf, size_t nbytes,
    int numargs, uint32_t *args) {
    (void)token, (void)buf, (void)nbytes, (void)handler;
    CHECK(category == ammpi_Short && numargs > 0 && (!is_request || args[0] == 1));
    answers += 100;
}
static void after(ammpi_category_t category, int is_request) {
    (void)category, (void)is_request;
    answers -= 100;
}

int main(void) {
    int number;
    handler_t handler;
    tag_t tag;
    en_t name;
    void *address;
    uintptr_t bytes;
    eb_t other;
    ammpi_stats_t statistics, all = AMMPI_initial_stats;

    watchdog(60);
    GIVES(AM_Terminate(), AM_ERR_NOT_INIT);
    GIVES(AM_AllocateBundle(AM_SEQ, &bundle), AM_ERR_NOT_INIT);
    AM_Safe(AM_Init());
    CHECK(AM_MaxShort() >= 16 && AM_MaxMedium() >= 512 && AM_MaxLong() >= 8192 && AM_MaxNumHandlers() >= 256);
    AM_Safe(AM_MaxNumTranslations(&number));
    AM_Safe(AM_MaxSegLength(&bytes));
    CHECK(number >= 256 && bytes == (uintptr_t)-1);
    CHECK(number == AMMPI_MAX_NUMTRANSLATIONS && bytes == AMMPI_MAX_SEGLENGTH);
    CHECK(AM_MaxShort() == AMMPI_MAX_SHORT && AM_MaxMedium() == (int)sizeof largest_medium);
    CHECK(AM_MaxLong() == AMMPI_MAX_LONG && AM_MaxNumHandlers() == AMMPI_MAX_NUMHANDLERS);
    CHECK(sizeof translations > 0);
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
        AM_Safe(AM_AllocateBundle(kinds[at], &other));
        for (size_t mask = 0; mask < sizeof masks / sizeof *masks; mask++) AM_Safe(AM_SetEventMask(other, masks[mask]));
        GIVES(AM_SetEventMask(other, AM_NUMEVENTMASKS), AM_ERR_BAD_ARG);
        AM_Safe(AM_FreeBundle(other));
    }
    GIVES(AM_AllocateBundle(AM_NUM_BUNDLE_MODES, &other), AM_ERR_BAD_ARG);

    GIVES(AM_AllocateBundle(9, &bundle), AM_ERR_BAD_ARG);
    AM_Safe(AM_AllocateBundle(AM_SEQ, &bundle));
    AM_Safe(AM_AllocateEndpoint(bundle, &a, &name_a));
    AM_Safe(AM_AllocateEndpoint(bundle, &b, &name_b));
    GIVES(AM_AllocateEndpoint(NULL, &a, &name_a), AM_ERR_BAD_ARG);
    AM_Safe(AM_SetExpectedResources(a, 2, 10));
    AM_Safe(AM_GetTag(b, &tag));
    CHECK(tag == AM_NONE);
    AM_Safe(AM_SetTag(b, 7));
    AM_Safe(AM_SetTag(a, AM_ALL));

    AM_Safe(AM_Map(a, 1, name_b, 7));
    AM_Safe(AM_Map(b, 5, name_a, AM_ALL));
    GIVES(AM_Map(a, 1, name_b, 7), AM_ERR_RESOURCE);
    GIVES(AM_Map(a, -1, name_b, 7), AM_ERR_BAD_ARG);
    AM_Safe(AM_MapAny(a, &number, name_b, 8));
    CHECK(number == 0);
    AM_Safe(AM_GetTranslationInuse(a, 1));
    GIVES(AM_GetTranslationInuse(a, 2), AM_ERR_RESOURCE);
    AM_Safe(AM_GetTranslationTag(a, 0, &tag));
    AM_Safe(AM_GetTranslationName(a, 0, &name));
    CHECK(tag == 8 && AMMPI_enEqual(name, name_b));
    AM_Safe(AM_GetNumTranslations(a, &number));
    AM_Safe(AM_SetNumTranslations(a, number + 10));

    AM_Safe(AM_SetHandler(b, SUM, sum));
    AM_Safe(AM_SetHandler(a, ANSWER, answer));
    AM_Safe(AM_SetHandler(a, MEDIUM, medium));
    AM_Safe(AM_SetHandler(b, MEDIUM, medium));
    AM_Safe(AM_SetHandler(b, LONG, transfer));
    AM_Safe(AM_SetHandler(b, NOWHERE, nowhere));
    AM_Safe(AM_SetHandler(b, BEYOND, beyond));
    AM_Safe(AM_SetHandlerAny(a, &handler, sum));
    CHECK(handler == 1);
    GIVES(AM_SetHandler(a, 1, NULL), AM_ERR_BAD_ARG);
    AM_Safe(AM_GetNumHandlers(a, &number));
    AM_Safe(AM_SetNumHandlers(a, number));
    AM_Safe(AM_SetHandler(a, 0, returned));
    AM_Safe(AM_SetHandler(b, 0, returned));
    AM_Safe(AM_SetSeg(b, segment, sizeof segment));
    AM_Safe(AM_GetSeg(b, &address, &bytes));
    CHECK(address == segment && bytes == sizeof segment);

    GIVES(AM_WaitSema(bundle), AM_ERR_BAD_ARG);
    AM_Safe(AM_GetEventMask(bundle, &number));
    CHECK(number == AM_NOEVENTS);
    AM_Safe(AM_SetEventMask(bundle, AM_CANSEND));
    AM_Safe(AM_WaitSema(bundle));

    GIVES(AM_Request0(a, 1, 0), AM_ERR_BAD_ARG);
    GIVES(AM_Request0(a, 9, SUM), AM_ERR_BAD_ARG);
    AM_Safe(AM_Request4(a, 1, SUM, 1, 2, 3, 4));
    poll_for(1);
    AM_Safe(AMMPI_Request(a, 1, SUM, 4, 1, 2, 3, 4));
    poll_for(1);
    GIVES(AMMPI_Request(a, 1, SUM, 17, 1), AM_ERR_BAD_ARG);
    AM_Safe(AMMPI_SetHandlerCallbacks(b, before, after));
    AM_Safe(AM_Request4(a, 1, SUM, 1, 2, 3, 4));
    poll_for(1);
    AM_Safe(AMMPI_SetHandlerCallbacks(b, NULL, NULL));
    AM_Safe(AM_RequestI1(a, 1, MEDIUM, "bytes", 5, -3));
    AM_Safe(AMMPI_RequestI(a, 1, MEDIUM, "bytes", 5, 1, -3));
    poll_for(2);
    AM_Safe(AM_RequestXfer1(a, 1, 8, LONG, "bytes", 5, 4));
    AM_Safe(AM_RequestXferAsync1(a, 1, 8, LONG, "bytes", 5, 4));
    AM_Safe(AMMPI_RequestXfer(a, 1, LONG, "bytes", 5, 8, 0, 1, 4));
    poll_for(6);

    AM_Safe(AM_Request0(a, 0, SUM));
    comes_back(EBADTAG, AM_REQUEST_M);
    AM_Safe(AM_RequestI0(a, 1, 99, "bytes", 5));
    comes_back(EBADHANDLER, AM_REQUEST_IM);
    AM_Safe(AM_RequestXfer1(a, 1, 65, LONG, "bytes", 5, 4));
    comes_back(EBADSEGOFF, AM_REQUEST_XFER_M);
    AM_Safe(AM_RequestXfer1(a, 1, 60, LONG, "bytes", 5, 4));
    comes_back(EBADLENGTH, AM_REQUEST_XFER_M);
    /* Replies come back to the endpoint that has sent them. */
    name = name_b;
    name_b = name_a;
    AM_Safe(AM_Request0(a, 1, NOWHERE));
    comes_back(EREPLYREJECTED, AM_REPLY_M);
    AM_Safe(AM_Request0(a, 1, BEYOND));
    comes_back(EREPLYREJECTED, AM_REPLY_XFER_M);
    name_b = name;

    AM_Safe(AMMPI_GetEndpointStatistics(a, &statistics));
    CHECK(statistics.RequestsSent[ammpi_Short] == 6 && statistics.RequestsSent[ammpi_Long] == 5);
    CHECK(statistics.ReturnedMessages == 4);
    AM_Safe(AMMPI_AggregateStatistics(&all, &statistics));
    CHECK(strstr(AMMPI_DumpStatistics(NULL, &all, 1), "requests sent: 6  3  5") != NULL);
    AM_Safe(AMMPI_ResetEndpointStatistics(a));

    /* What the transfers above have left in the other segment. */
    const int32_t argument = 6;
    GIVES(AM_GetXfer1(a, 1, 8, GOT, 2, 5, 6), AM_ERR_BAD_ARG);
    AM_Safe(AM_SetSeg(a, own, sizeof own));
    AM_Safe(AM_SetHandler(a, GOT, got));
    AM_Safe(AM_GetXfer1(a, 1, 8, GOT, 2, 5, 6));
    GIVES(AM_SetSeg(a, NULL, 0), AM_ERR_IN_USE);
    poll_for(1);
    AM_Safe(AM_GetXferAsync1(a, 1, 8, GOT, 2, 5, 6));
    poll_for(1);
    AM_Safe(AM2_GetXfer(a, 1, GOT, 8, 5, 2, 0, 1, &argument));
    poll_for(1);
    GIVES(AM_GetXfer1(NULL, 1, 8, GOT, 2, 5, 6), AM_ERR_BAD_ARG);
    GIVES(AM_GetXfer1(a, 1, 8, 0, 2, 5, 6), AM_ERR_BAD_ARG);
    GIVES(AM_GetXfer1(a, 9, 8, GOT, 2, 5, 6), AM_ERR_BAD_ARG);
    GIVES(AM_GetXfer1(a, 1, 8, GOT, 12, 5, 6), AM_ERR_BAD_ARG);
    GIVES(AM2_GetXfer(a, 1, GOT, 8, 5, 2, 0, 17, &argument), AM_ERR_BAD_ARG);
    AM_Safe(AM_GetXfer1(a, 0, 8, GOT, 2, 5, 6));
    comes_back(EBADTAG, AM_GET_XFER_M);
    AM_Safe(AM_GetXfer1(a, 1, 8, 99, 2, 5, 6));
    comes_back(EBADHANDLER, AM_GET_XFER_M);
    AM_Safe(AM_GetXfer1(a, 1, 65, GOT, 2, 5, 6));
    comes_back(EBADSEGOFF, AM_GET_XFER_M);
    AM_Safe(AM_GetXfer1(a, 1, 60, GOT, 2, 5, 6));
    comes_back(EBADLENGTH, AM_GET_XFER_M);

    AM_Safe(AM_AllocateBundle(AM_PAR, &other));
    AM_Safe(AM_MoveEndpoint(b, bundle, other));
    GIVES(AM_MoveEndpoint(b, bundle, other), AM_ERR_BAD_ARG);
    AM_Safe(AM_Request0(a, 1, SUM));
    AM_Safe(AM_FreeBundle(other));
    comes_back(EBADENDPOINT, AM_REQUEST_M);
    AM_Safe(AM_GetXfer1(a, 1, 8, GOT, 2, 5, 6));
    comes_back(EBADENDPOINT, AM_GET_XFER_M);
    AM_Safe(AM_UnMap(a, 1));
    GIVES(AM_UnMap(a, 1), AM_ERR_RESOURCE);
    AM_Safe(AM_FreeEndpoint(a));
    AM_Safe(AM_Terminate());
    GIVES(AM_Poll(bundle), AM_ERR_NOT_INIT);
    puts("calls of Active Messages II: well");
    return 0;
}
