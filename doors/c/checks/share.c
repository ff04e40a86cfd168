/* A program in C and one in Rust (examples/partner.rs) share the objects of a world: share PARTNER */
#include "check.h"

#define ROUNDS 5000

int main(int count, char **arguments) {
    char name[64];
    tp_world *world;
    tp_mutex *balance;
    tp_cond *changed;
    tp_event *ready;
    tp_queue *questions, *answers;
    tp_broadcast *news;
    CHECK(count == 2);
    watchdog(120);
    snprintf(name, sizeof name, "share-%d", (int)getpid());
    GIVES(tp_world_create(name, 2, 1 << 20, &world), 0);
    GIVES(tp_world_mutex(world, "balance", 0, &balance), 0);
    GIVES(tp_world_cond(world, "changed", &changed), 0);
    GIVES(tp_world_event(world, "ready", &ready), 0);
    GIVES(tp_world_queue(world, "questions", TP_MPMC, 16, 4, &questions), 0);
    GIVES(tp_world_queue(world, "answers", TP_MPMC, 16, 4, &answers), 0);
    GIVES(tp_world_broadcast(world, "news", 4096, 0, &news), 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char rounds[16];
        alarm(120);
        snprintf(rounds, sizeof rounds, "%d", ROUNDS);
        execl(arguments[1], "partner", name, rounds, (char *)NULL);
        _exit(127);
    }
    GIVES(tp_event_wait(ready, LONG), 0);
    for (int k = 0; k < ROUNDS; k++) {
        GIVES(tp_mutex_lock(balance), 0);
        ++*tp_mutex_value(balance);
        GIVES(tp_mutex_unlock(balance), 0);
    }
    GIVES(tp_mutex_lock(balance), 0);
    while (*tp_mutex_value(balance) < 2 * ROUNDS) GIVES(tp_cond_wait(changed, balance, LONG), 0);
    CHECK(*tp_mutex_value(balance) == 2 * ROUNDS);
    GIVES(tp_mutex_unlock(balance), 0);

    tp_sender *ask;
    tp_receiver *hear;
    tp_writer *tell;
    GIVES(tp_sender_open(questions, &ask), 0);
    GIVES(tp_receiver_open(answers, &hear), 0);
    for (uint64_t k = 0; k < ROUNDS; k++) {
        uint64_t message[2] = {k, k + 7};
        GIVES(tp_sender_send(ask, message, LONG), 0);
        GIVES(tp_receiver_receive(hear, message, LONG), 0);
        CHECK(message[0] == k && message[1] == (k + 7) * (k + 7));
    }
    CHECK(tp_world_is_alive(world, 1) == 1);
    GIVES(tp_writer_open(news, &tell), 0);
    GIVES(tp_writer_send(tell, "the end", 7, LONG), 0);
    CHECK(waitpid(child, NULL, 0) == child);
    child = 0;
    GIVES(tp_mutex_timedlock(balance, LONG), TP_EOWNERDEAD);
    CHECK(*tp_mutex_value(balance) == 2 * ROUNDS + 1);
    GIVES(tp_mutex_consistent(balance), 0);
    GIVES(tp_mutex_unlock(balance), 0);
    CHECK(tp_world_is_alive(world, 1) == 0 && tp_world_deaths(world) == 1);
    tp_writer_close(tell);
    tp_sender_close(ask);
    tp_receiver_close(hear);
    tp_broadcast_close(news);
    tp_queue_close(questions);
    tp_queue_close(answers);
    tp_event_close(ready);
    tp_cond_close(changed);
    tp_mutex_close(balance);
    tp_world_close(world);
    puts("share: well");
    return 0;
}
