/* A program in C and one in Rust (examples/partner.rs), and one in Python (share.py), share the objects of a world:
 * share PARTNER [PYTHON SCRIPT] */
#include "check.h"

#define ROUNDS 5000

static pid_t start(char **command) {
    pid_t started = fork();
    CHECK(started >= 0);
    if (started == 0) {
        alarm(120);
        execv(command[0], command);
        _exit(127);
    }
    return started;
}

int main(int count, char **arguments) {
    char name[64];
    tp_world *world;
    tp_mutex *balance;
    tp_cond *changed;
    tp_event *ready;
    tp_queue *questions, *answers;
    tp_broadcast *news;
    tp_bytes *table;
    tp_sem *permits;
    char rounds[16];
    pid_t pythons = 0;
    CHECK(count == 2 || count == 4);
    watchdog(120);
    snprintf(name, sizeof name, "share-%d", (int)getpid());
    GIVES(tp_world_create(name, 3, 1 << 20, &world), 0);
    GIVES(tp_world_mutex(world, "balance", 0, &balance), 0);
    GIVES(tp_world_cond(world, "changed", &changed), 0);
    GIVES(tp_world_event(world, "ready", &ready), 0);
    GIVES(tp_world_queue(world, "questions", TP_MPMC, 16, 4, &questions), 0);
    GIVES(tp_world_queue(world, "answers", TP_MPMC, 16, 4, &answers), 0);
    GIVES(tp_world_broadcast(world, "news", 4096, 0, &news), 0);
    GIVES(tp_world_bytes(world, "table", 64, &table), 0);
    GIVES(tp_world_sem(world, "permits", 1, &permits), 0);
    snprintf(rounds, sizeof rounds, "%d", ROUNDS);
    char *rust[] = {arguments[1], name, rounds, NULL}, *python[] = {arguments[2], arguments[3], name, rounds, NULL};
    child = start(rust);
    if (count == 4) pythons = start(python);
    GIVES(tp_event_wait(ready, LONG), 0);
    for (int k = 0; k < ROUNDS; k++) {
        GIVES(tp_mutex_lock(balance), 0);
        ++*tp_mutex_value(balance);
        GIVES(tp_mutex_unlock(balance), 0);
    }
    GIVES(tp_mutex_lock(balance), 0);
    while (*tp_mutex_value(balance) < 2 * ROUNDS) GIVES(tp_cond_wait(changed, balance, LONG), 0);
    CHECK(*tp_mutex_value(balance) == 2 * ROUNDS);
    uint64_t *words = tp_bytes_at(table);
    while (pythons != 0 && words[0] < ROUNDS) GIVES(tp_cond_wait(changed, balance, LONG), 0);
    words[1] = ROUNDS;
    GIVES(tp_mutex_unlock(balance), 0);
    if (pythons != 0) {
        int status = 0;
        GIVES(tp_sem_wait(permits, LONG), 0);
        GIVES(tp_cond_broadcast(changed), 0);
        GIVES(tp_sem_release(permits), 0);
        CHECK(waitpid(pythons, &status, 0) == pythons && status == 0);
    }

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
    /* The program in Rust; that in Python has ended. Which rank each of them has is not known. */
    CHECK(tp_world_is_alive(world, 1) + tp_world_is_alive(world, 2) == 1);
    GIVES(tp_writer_open(news, &tell), 0);
    GIVES(tp_writer_send(tell, "the end", 7, LONG), 0);
    CHECK(waitpid(child, NULL, 0) == child);
    child = 0;
    GIVES(tp_mutex_timedlock(balance, LONG), TP_EOWNERDEAD);
    CHECK(*tp_mutex_value(balance) == 2 * ROUNDS + 1);
    GIVES(tp_mutex_consistent(balance), 0);
    GIVES(tp_mutex_unlock(balance), 0);
    CHECK(tp_world_is_alive(world, 1) + tp_world_is_alive(world, 2) == 0 && tp_world_deaths(world) == 1);
    tp_writer_close(tell);
    tp_sender_close(ask);
    tp_receiver_close(hear);
    tp_broadcast_close(news);
    tp_bytes_close(table);
    tp_sem_close(permits);
    tp_queue_close(questions);
    tp_queue_close(answers);
    tp_event_close(ready);
    tp_cond_close(changed);
    tp_mutex_close(balance);
    tp_world_close(world);
    printf("share: well%s\n", pythons ? ", with Python, too" : "");
    return 0;
}
