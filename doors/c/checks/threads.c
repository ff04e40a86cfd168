/* Threads that share the handles: a run under -fsanitize=thread and address shows what the header promises. */
#include "check.h"

#include <pthread.h>

#define THREADS 4
#define ROUNDS 2000

static tp_mutex *mutex;
static tp_cond *cond;
static tp_rwlock *rwlock;
static tp_sem *sem;
static tp_barrier *barrier;
static tp_event *event;
static tp_queue *queue;
static tp_sender *sender;
static tp_receiver *receiver;
static long count, pair[2], turns, by_permit, passed;
static int phase[THREADS];

static void *work(void *argument) {
    int me = (int)(long)argument;
    for (int k = 0; k < ROUNDS; k++) {
        GIVES(tp_mutex_lock(mutex), 0);
        count++;
        ++*tp_mutex_value(mutex);
        GIVES(tp_mutex_unlock(mutex), 0);
        if (k % 10 == me) {
            GIVES(tp_rwlock_write(rwlock, LONG), 0);
            pair[0]++, pair[1]++;
            GIVES(tp_rwlock_write_unlock(rwlock), 0);
        } else {
            tp_reading reading;
            GIVES(tp_rwlock_read(rwlock, LONG, &reading), 0);
            CHECK(pair[0] == pair[1]);
            GIVES(tp_rwlock_read_unlock(rwlock, &reading), 0);
        }
        GIVES(tp_sem_wait(sem, LONG), 0);
        by_permit++;
        GIVES(tp_sem_release(sem), 0);
    }
    /* One turn after the other. */
    GIVES(tp_mutex_lock(mutex), 0);
    for (int k = 0; k < 50; k++) {
        while (turns % THREADS != me) GIVES(tp_cond_wait(cond, mutex, TP_FOREVER), 0);
        turns++;
        GIVES(tp_cond_broadcast(cond), 0);
    }
    GIVES(tp_mutex_unlock(mutex), 0);
    for (int k = 1; k <= 20; k++) {
        phase[me] = k;
        GIVES(tp_barrier_wait(barrier, LONG), 0);
        for (int other = 0; other < THREADS; other++) CHECK(phase[other] == k);
        GIVES(tp_barrier_wait(barrier, LONG), 0);
    }
    /* One after the other leaves: it has arrived, and is not waited for. */
    for (int k = 1; k <= me; k++) GIVES(tp_barrier_wait(barrier, LONG), 0);
    for (int other = 0; other < me; other++) CHECK(phase[other] == -1);
    phase[me] = -1;
    GIVES(tp_barrier_leave(barrier), 0);
    GIVES(tp_barrier_leave(barrier), TP_EPERM);
    /* What a message points to was written before it was sent. */
    if (me == 0) {
        for (int k = 0; k < ROUNDS; k++) {
            long *value = malloc(sizeof *value);
            *value = k;
            GIVES(tp_sender_send(sender, &value, LONG), 0);
        }
    } else if (me == 1) {
        for (int k = 0; k < ROUNDS; k++) {
            long *value;
            GIVES(tp_receiver_receive(receiver, &value, LONG), 0);
            CHECK(*value == k);
            free(value);
        }
        passed = 1;
        GIVES(tp_event_set(event), 0);
    } else {
        GIVES(tp_event_wait(event, LONG), 0);
        CHECK(passed == 1);
    }
    return NULL;
}

/* What the header allows in a signal's handler. ThreadSanitizer keeps signals back in calls that it does not know. */
#ifndef __SANITIZE_THREAD__
static pthread_t waiter;
static void handle(int number) {
    if (tp_event_is_set(event) == 0 && tp_strerror(TP_ETIMEDOUT) != NULL) tp_event_set(event);
    (void)number;
}
static void *disturb(void *nothing) {
    nap(20000000);
    CHECK(pthread_kill(waiter, SIGUSR1) == 0);
    return nothing;
}
static void wait_for_a_handler(void) {
    pthread_t disturber;
    waiter = pthread_self();
    signal(SIGUSR1, handle);
    GIVES(tp_event_reset(event), 1);
    CHECK(pthread_create(&disturber, NULL, disturb, NULL) == 0);
    GIVES(tp_event_wait(event, LONG), 0);
    CHECK(pthread_join(disturber, NULL) == 0);
}
#else
static void wait_for_a_handler(void) {}
#endif

int main(void) {
    watchdog(120);
    tp_world *world;
    GIVES(tp_world_create(NULL, 2, 1 << 20, &world), 0);
    GIVES(tp_world_mutex(world, "mutex", 0, &mutex), 0);
    GIVES(tp_world_cond(world, "cond", &cond), 0);
    GIVES(tp_world_rwlock(world, "rwlock", 0, &rwlock), 0);
    GIVES(tp_world_sem(world, "sem", 1, &sem), 0);
    GIVES(tp_world_barrier_of(world, "barrier", THREADS, &barrier), 0);
    GIVES(tp_world_event(world, "event", &event), 0);
    GIVES(tp_world_queue(world, "queue", TP_MPMC, 8, 64, &queue), 0);
    GIVES(tp_sender_open(queue, &sender), 0);
    GIVES(tp_receiver_open(queue, &receiver), 0);
    pthread_t threads[THREADS];
    for (long k = 0; k < THREADS; k++) CHECK(pthread_create(&threads[k], NULL, work, (void *)k) == 0);
    for (int k = 0; k < THREADS; k++) CHECK(pthread_join(threads[k], NULL) == 0);
    CHECK(count == THREADS * ROUNDS && by_permit == count && *tp_mutex_value(mutex) == (uint64_t)count);
    CHECK(pair[0] == pair[1] && pair[0] == THREADS * ROUNDS / 10);
    wait_for_a_handler();
    tp_sender_close(sender);
    tp_receiver_close(receiver);
    tp_queue_close(queue);
    tp_event_close(event);
    tp_barrier_close(barrier);
    tp_sem_close(sem);
    tp_rwlock_close(rwlock);
    tp_cond_close(cond);
    tp_mutex_close(mutex);
    tp_world_close(world);
    puts("threads: well");
    return 0;
}
