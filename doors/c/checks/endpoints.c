/* Ranks of `towpath run` that send each other messages, and share structures. */
#include "check.h"

struct seen {
    unsigned answers, sum;
    size_t bytes;
};

static void answers(tp_token *token, void *context) {
    size_t count;
    const uint32_t *args = tp_token_args(token, &count);
    uint32_t doubled = 2 * args[0];
    (void)context;
    CHECK(count == 1 && tp_token_is_request(token) == 1);
    GIVES(tp_token_reply(token, 2, &doubled, 1), 0);
}
static void adds(tp_token *token, void *context) {
    struct seen *seen = context;
    size_t count;
    seen->answers++;
    seen->sum += *tp_token_args(token, &count);
}
static void takes(tp_token *token, void *context) {
    struct seen *seen = context;
    size_t bytes;
    const char *text = tp_token_bytes(token, &bytes);
    CHECK(bytes == 7 && memcmp(text, "payload", 7) == 0);
    seen->bytes += bytes;
}

int main(void) {
    tp_world *world;
    tp_endpoint *endpoint;
    tp_map *map;
    tp_fifo *fifo;
    struct seen seen = {0};
    watchdog(100);
    GIVES(tp_world_join(&world), 0);
    uint32_t me = (uint32_t)tp_world_rank(world), size = tp_world_size(world);
    GIVES(tp_endpoint_open(world, &endpoint), 0);
    GIVES(tp_endpoint_set_handler(endpoint, 1, answers, NULL), 0);
    GIVES(tp_endpoint_set_handler(endpoint, 2, adds, &seen), 0);
    GIVES(tp_endpoint_set_handler(endpoint, 3, takes, &seen), 0);
    GIVES(tp_endpoint_map_world(endpoint), 0);
    for (uint32_t k = 0; k < 300; k++) GIVES(tp_endpoint_request(endpoint, (me + k) % size, 1, &k, 1), 0);
    GIVES(tp_endpoint_request_medium(endpoint, (me + 1) % size, 3, NULL, 0, "payload", 7), 0);
    while (seen.answers < 300 || seen.bytes < 7) {
        int waited = tp_endpoint_wait(endpoint, LONG);
        CHECK(waited == 0 && tp_endpoint_poll(endpoint) >= 0);
    }
    CHECK(seen.sum == 300 * 299);
    GIVES(tp_endpoint_barrier(endpoint), 0);

    GIVES(tp_world_map(world, "ranks", TP_SMALL, &map), 0);
    GIVES(tp_world_fifo(world, "arrived", TP_SMALL, &fifo), 0);
    GIVES(tp_map_insert(map, me, 100 + me, NULL), 0);
    GIVES(tp_fifo_push(fifo, me), 0);
    GIVES(tp_endpoint_barrier(endpoint), 0);
    for (uint32_t rank = 0; rank < size; rank++) {
        uint64_t value;
        GIVES(tp_map_get(map, rank, &value), 1);
        CHECK(value == 100 + rank);
    }
    GIVES(tp_endpoint_barrier(endpoint), 0);
    uint64_t any;
    GIVES(tp_fifo_pop(fifo, &any), 1);
    CHECK(any < size);
    GIVES(tp_endpoint_barrier(endpoint), 0);
    GIVES(tp_fifo_pop(fifo, &any), 0);
    tp_map_close(map);
    tp_fifo_close(fifo);
    tp_endpoint_close(endpoint);
    tp_world_close(world);
    return 0;
}
