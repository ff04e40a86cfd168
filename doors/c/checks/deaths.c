/* Kills of a process in each state that a primitive gives it: no survivor hangs, and each is told what it must be. */
#include "check.h"

#define MESSAGE 64
#define ROOM (1u << 18)

/* Where each primitive lies, and words that say how far the child is. */
struct stage {
    volatile int reached;
    volatile long long data;
    _Alignas(128) char mutex[ROOM], rwlock[ROOM], sem[ROOM], barrier[ROOM], event[ROOM], queue[ROOM], ring[ROOM], go[ROOM],
        jobs[ROOM], letters[ROOM];
};
static struct stage *stage;

static tp_mutex *mutex;
static tp_cond *cond;
static tp_rwlock *rwlock;
static tp_sem *sem;
static tp_barrier *barrier;
static tp_event *event, *go;
static tp_queue *queue, *jobs;
static tp_messages *letters;
static tp_broadcast *ring;

/* Opens everything, as any of the processes: the first makes it. */
static void open_all(void) {
    GIVES(tp_mutex_open_or_init(stage->mutex, ROOM, 8, &mutex), 0);
    GIVES(tp_cond_open(mutex, "changed", &cond), 0);
    GIVES(tp_rwlock_open_or_init(stage->rwlock, ROOM, 8, &rwlock), 0);
    GIVES(tp_sem_open_or_init(stage->sem, ROOM, 8, 1, &sem), 0);
    GIVES(tp_barrier_open_or_init(stage->barrier, ROOM, 8, 2, &barrier), 0);
    GIVES(tp_event_open_or_init(stage->event, ROOM, 8, &event), 0);
    GIVES(tp_event_open_or_init(stage->go, ROOM, 8, &go), 0);
    GIVES(tp_queue_open_or_init(stage->queue, ROOM, 8, TP_MPMC, MESSAGE, 4, &queue), 0);
    GIVES(tp_broadcast_open_or_init(stage->ring, ROOM, 8, 4096, 0, &ring), 0);
    GIVES(tp_queue_open_or_init(stage->jobs, ROOM, 8, TP_MPSC, 13, 4, &jobs), 0);
    GIVES(tp_messages_open_or_init(stage->letters, ROOM, 8, 4, 2, 1000, &letters), 0);
}

static void close_all(void) {
    tp_cond_close(cond);
    tp_mutex_close(mutex);
    tp_rwlock_close(rwlock);
    tp_sem_close(sem);
    tp_barrier_close(barrier);
    tp_event_close(event);
    tp_event_close(go);
    tp_queue_close(queue);
    tp_broadcast_close(ring);
    tp_queue_close(jobs);
    tp_messages_close(letters);
}

static void at(int number) { stage->reached = number; }

/* Runs a child up to a state, kills it there. `settle`: after so long it has got there within its call. */
static void kill_child_at(const char *name, void (*act)(void), long settle) {
    step = name;
    stage->reached = 0;
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        child = -1;
        alarm(60);
        /* The parent's handles are nothing here. */
        GIVES(tp_mutex_lock(mutex), TP_ENOTENTERED);
        GIVES(tp_mutex_unlock(mutex), TP_ENOTENTERED);
        GIVES(tp_event_wait(event, 0), TP_ENOTENTERED);
        close_all();
        open_all();
        act();
        for (;;) pause();
    }
    for (int k = 0; stage->reached == 0 && k < 20000; k++) nap(1000000);
    CHECK(stage->reached != 0);
    nap(settle);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    child = 0;
}

static void holds_mutex(void) {
    GIVES(tp_mutex_lock(mutex), 0);
    stage->data = -1;
    at(1);
}
static void waits_for_mutex(void) {
    at(1);
    tp_mutex_lock(mutex);
}
static void waits_for_condition(void) {
    GIVES(tp_mutex_lock(mutex), 0);
    at(1);
    for (;;) tp_cond_wait(cond, mutex, TP_FOREVER);
}
static void finds_owner_dead(void) {
    GIVES(tp_mutex_lock(mutex), TP_EOWNERDEAD);
    at(1);
}
static void reads(void) {
    static tp_reading reading;
    GIVES(tp_rwlock_read(rwlock, LONG, &reading), 0);
    at(1);
}
static void writes(void) {
    GIVES(tp_rwlock_write(rwlock, LONG), 0);
    at(1);
}
static void waits_to_write(void) {
    at(1);
    tp_rwlock_write(rwlock, TP_FOREVER);
}
static void has_permit(void) {
    GIVES(tp_sem_wait(sem, LONG), 0);
    at(1);
}
static void waits_for_permit(void) {
    at(1);
    tp_sem_wait(sem, TP_FOREVER);
}
static void has_left_barrier(void) {
    GIVES(tp_barrier_join(barrier), 0);
    GIVES(tp_barrier_leave(barrier), 0);
    at(1);
}
static void waits_at_barrier(void) {
    GIVES(tp_barrier_join(barrier), 0);
    at(1);
    tp_barrier_wait(barrier, TP_FOREVER);
}
static void waits_for_event(void) {
    at(1);
    tp_event_wait(event, TP_FOREVER);
}
static void fills_queue(void) {
    static tp_sender *sender;
    char message[MESSAGE] = "from the dead";
    GIVES(tp_sender_open(queue, &sender), 0);
    for (int k = 0; k < 4; k++) GIVES(tp_sender_send(sender, message, LONG), 0);
    at(1);
    tp_sender_send(sender, message, TP_FOREVER);
}
static void waits_for_message(void) {
    static tp_receiver *receiver;
    char message[MESSAGE];
    GIVES(tp_receiver_open(queue, &receiver), 0);
    at(1);
    tp_receiver_receive(receiver, message, TP_FOREVER);
}
static void reads_ring(void) {
    static tp_reader *reader;
    GIVES(tp_reader_open(ring, &reader), 0);
    at(1);
}
static void writes_ring(void) {
    static tp_writer *writer;
    GIVES(tp_writer_open(ring, &writer), 0);
    GIVES(tp_event_wait(go, LONG), 0);
    GIVES(tp_writer_send(writer, "last words", 10, LONG), 0);
    at(1);
}

static void has_lease(void) {
    static tp_receiver *receiver;
    static tp_lease lease;
    const void *message;
    GIVES(tp_receiver_open(jobs, &receiver), 0);
    GIVES(tp_receiver_lease(receiver, LONG, &message, &lease), 0);
    CHECK(memcmp(message, "a leased job", 13) == 0);
    at(1);
}
static void has_letter(void) {
    static tp_fetcher *fetcher;
    static tp_message *letter;
    const void *message;
    size_t bytes;
    GIVES(tp_fetcher_open(letters, &fetcher), 0);
    GIVES(tp_fetcher_receive(fetcher, LONG, &message, &bytes, &letter), 0);
    CHECK(bytes == 900);
    at(1);
}
static void sends_letter(void) {
    static tp_poster *poster;
    char long_one[900] = "a letter";
    GIVES(tp_poster_open(letters, &poster), 0);
    GIVES(tp_poster_send(poster, long_one, sizeof long_one, LONG), 0);
    at(1);
}

static void mutex_is_free(void) {
    GIVES(tp_mutex_timedlock(mutex, LONG), 0);
    GIVES(tp_mutex_unlock(mutex), 0);
}

static void mutexes(void) {
    kill_child_at("holds the mutex", holds_mutex, 0);
    GIVES(tp_mutex_timedlock(mutex, LONG), TP_EOWNERDEAD);
    CHECK(stage->data == -1);
    /* Not repaired: the next is told again. */
    GIVES(tp_mutex_unlock(mutex), 0);
    kill_child_at("found the owner dead, and died", finds_owner_dead, 0);
    GIVES(tp_mutex_trylock(mutex) == TP_EOWNERDEAD ? 0 : tp_mutex_timedlock(mutex, LONG), 0);
    stage->data = 0;
    GIVES(tp_mutex_consistent(mutex), 0);
    GIVES(tp_mutex_unlock(mutex), 0);
    mutex_is_free();

    GIVES(tp_mutex_lock(mutex), 0);
    kill_child_at("waits for the mutex", waits_for_mutex, 20000000);
    GIVES(tp_mutex_unlock(mutex), 0);
    mutex_is_free();

    kill_child_at("waits for the condition", waits_for_condition, 20000000);
    GIVES(tp_mutex_timedlock(mutex, LONG), 0);
    GIVES(tp_cond_signal(cond), 0);
    /* The notification of the dead may come to this waiter. */
    int woken = tp_cond_wait(cond, mutex, SHORT);
    CHECK(woken == 0 || woken == TP_ETIMEDOUT);
    GIVES(tp_mutex_unlock(mutex), 0);
    mutex_is_free();
}

static void readers_and_writers(void) {
    tp_reading reading;
    kill_child_at("reads", reads, 0);
    GIVES(tp_rwlock_write(rwlock, LONG), 0);
    GIVES(tp_rwlock_write_unlock(rwlock), 0);
    kill_child_at("writes", writes, 0);
    GIVES(tp_rwlock_read(rwlock, LONG, &reading), TP_EOWNERDEAD);
    GIVES(tp_rwlock_consistent(rwlock), 0);
    GIVES(tp_rwlock_write_unlock(rwlock), 0);
    GIVES(tp_rwlock_read(rwlock, LONG, &reading), 0);
    kill_child_at("waits to write", waits_to_write, 20000000);
    GIVES(tp_rwlock_read_unlock(rwlock, &reading), 0);
    GIVES(tp_rwlock_read(rwlock, LONG, &reading), 0);
    GIVES(tp_rwlock_read_unlock(rwlock, &reading), 0);
}

static void others(void) {
    kill_child_at("has the permit", has_permit, 0);
    GIVES(tp_sem_wait(sem, LONG), 0);
    kill_child_at("waits for the permit", waits_for_permit, 20000000);
    GIVES(tp_sem_release(sem), 0);
    GIVES(tp_sem_wait(sem, LONG), 0);
    GIVES(tp_sem_release(sem), 0);

    kill_child_at("has left the barrier", has_left_barrier, 0);
    GIVES(tp_barrier_wait(barrier, LONG), 0);
    kill_child_at("waits at the barrier", waits_at_barrier, 20000000);
    /* It had arrived: that episode may be complete. */
    int outcome = tp_barrier_wait(barrier, LONG);
    if (outcome == 0) outcome = tp_barrier_wait(barrier, LONG);
    GIVES(outcome, TP_EPEERDIED);
    GIVES(tp_barrier_wait(barrier, LONG), 0);

    kill_child_at("waits for the event", waits_for_event, 20000000);
    GIVES(tp_event_wait(event, SHORT), TP_ETIMEDOUT);
    GIVES(tp_event_set(event), 0);
    GIVES(tp_event_wait(event, LONG), 0);
}

static void messages(void) {
    tp_receiver *receiver;
    tp_sender *sender;
    char message[MESSAGE];
    kill_child_at("sends into the full queue", fills_queue, 20000000);
    GIVES(tp_receiver_open(queue, &receiver), 0);
    for (int k = 0; k < 4; k++) {
        GIVES(tp_receiver_receive(receiver, message, LONG), 0);
        CHECK(strcmp(message, "from the dead") == 0);
    }
    GIVES(tp_receiver_receive(receiver, message, LONG), TP_EPEERDIED);
    GIVES(tp_sender_open(queue, &sender), 0);
    kill_child_at("waits for a message", waits_for_message, 20000000);
    memcpy(message, "alive", 6);
    GIVES(tp_sender_send(sender, message, LONG), 0);
    GIVES(tp_receiver_receive(receiver, message, LONG), 0);
    CHECK(strcmp(message, "alive") == 0);
    tp_receiver_close(receiver);
    /* The dead receiver is found when the queue is full. */
    int sent = 0;
    for (int k = 0; k < 6 && sent == 0; k++) sent = tp_sender_send(sender, message, LONG);
    CHECK(sent == TP_EDISCONNECTED || sent == TP_EPEERDIED);
    tp_sender_close(sender);

    tp_writer *writer;
    tp_reader *reader;
    const void *at;
    size_t bytes;
    GIVES(tp_writer_open(ring, &writer), 0);
    kill_child_at("reads the ring", reads_ring, 0);
    char big[1000] = {0};
    for (int k = 0; k < 20; k++) GIVES(tp_writer_send(writer, big, sizeof big, LONG), 0);
    tp_writer_lost_reader(writer);
    CHECK(tp_writer_readers(writer) == 0);
    tp_writer_close(writer);
    GIVES(tp_reader_open(ring, &reader), 0);
    GIVES(tp_event_set(go), 0);
    kill_child_at("writes the ring", writes_ring, 0);
    GIVES(tp_reader_receive(reader, LONG, &at, &bytes, NULL), 0);
    CHECK(bytes == 10 && memcmp(at, "last words", 10) == 0);
    GIVES(tp_reader_receive(reader, LONG, &at, &bytes, NULL), TP_EPEERDIED);
    tp_reader_close(reader);
}

/* What the dead had under a lease comes in again, whole. */
static void leases(void) {
    tp_sender *sender;
    tp_receiver *receiver;
    tp_fetcher *fetcher;
    tp_message *letter;
    tp_lease lease;
    const void *at;
    size_t bytes;
    GIVES(tp_sender_open(jobs, &sender), 0);
    GIVES(tp_sender_send(sender, "a leased job", LONG), 0);
    kill_child_at("has a lease", has_lease, 0);
    GIVES(tp_receiver_open(jobs, &receiver), 0);
    GIVES(tp_receiver_lease(receiver, LONG, &at, &lease), 0);
    CHECK(memcmp(at, "a leased job", 13) == 0);
    GIVES(tp_receiver_end(receiver, &lease, 1), 0);
    GIVES(tp_receiver_lease(receiver, SHORT, &at, &lease), TP_ETIMEDOUT);
    tp_receiver_close(receiver);
    tp_sender_close(sender);

    kill_child_at("sends a letter", sends_letter, 0);
    kill_child_at("has a letter", has_letter, 0);
    GIVES(tp_fetcher_open(letters, &fetcher), 0);
    GIVES(tp_fetcher_receive(fetcher, LONG, &at, &bytes, &letter), 0);
    CHECK(bytes == 900 && strcmp(at, "a letter") == 0);
    tp_message_done(letter);
    GIVES(tp_fetcher_receive(fetcher, LONG, &at, &bytes, &letter), TP_EPEERDIED);
    tp_fetcher_close(fetcher);
}

/* Every 32-bit word of what a library checks, changed: refused, or the same object. */
static void versions(void) {
    step = "other versions and damage";
    tp_event *again;
    unsigned *words = (unsigned *)stage->event;
    int refused = 0, version = 0;
    GIVES(tp_mutex_open(stage->event, ROOM, &mutex), TP_ETYPE);
    tp_messages *none;
    GIVES(tp_messages_open(stage->event, ROOM, 8, 2, 1000, &none), TP_ETYPE);
    for (int k = 0; k < 64; k++) {
        unsigned before = words[k];
        words[k] ^= 0x40;
        int result = tp_event_open(stage->event, ROOM, &again);
        words[k] = before;
        if (result == 0) {
            GIVES(tp_event_wait(again, LONG), 0);
            tp_event_close(again);
        } else {
            refused++;
            version += result == TP_EVERSION;
        }
    }
    CHECK(refused >= 8 && version == 1);
}

int main(void) {
    watchdog(120);
    CHECK(tp_messages_size(8, 4, 2, 1000) <= ROOM && tp_mutex_size(8, 1) <= ROOM && tp_queue_size(8, TP_MPMC, MESSAGE, 4) <= ROOM && tp_broadcast_size(8, 4096) <= ROOM);
    for (int round = 0; round < 3; round++) {
        stage = shared_memory(sizeof *stage);
        open_all();
        mutexes();
        readers_and_writers();
        others();
        messages();
        leases();
        close_all();
        open_all();
        tp_mutex *held = mutex;
        versions();
        mutex = held;
        close_all();
        munmap(stage, sizeof *stage);
    }
    puts("deaths: well");
    return 0;
}
