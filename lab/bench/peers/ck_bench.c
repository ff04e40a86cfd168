/*
 * Concurrency Kit's objects, whose functions are inline or in libck, as functions of a library that
 * `towpath bench` loads. An object lies at `at`, in memory that threads or processes share, zero at
 * first and made once by its `init`.
 */
#include <ck_barrier.h>
#include <ck_ring.h>
#include <ck_rwlock.h>
#include <ck_spinlock.h>
#include <sched.h>
#include <stddef.h>

#define PLACES 1024

struct ring {
    ck_ring_t ring;
    ck_ring_buffer_t places[PLACES];
};

size_t ck_bench_bytes(void) { return sizeof(struct ring); }

void ck_bench_spinlock_init(void *at) { ck_spinlock_init(at); }
void ck_bench_spinlock_lock(void *at) { ck_spinlock_lock(at); }
void ck_bench_spinlock_unlock(void *at) { ck_spinlock_unlock(at); }

void ck_bench_ticket_init(void *at) { ck_spinlock_ticket_init(at); }
void ck_bench_ticket_lock(void *at) { ck_spinlock_ticket_lock(at); }
void ck_bench_ticket_unlock(void *at) { ck_spinlock_ticket_unlock(at); }

void ck_bench_rwlock_init(void *at) { ck_rwlock_init(at); }
void ck_bench_rwlock_read(void *at) { ck_rwlock_read_lock(at); }
void ck_bench_rwlock_read_unlock(void *at) { ck_rwlock_read_unlock(at); }
void ck_bench_rwlock_write(void *at) { ck_rwlock_write_lock(at); }
void ck_bench_rwlock_write_unlock(void *at) { ck_rwlock_write_unlock(at); }

/* `sense` is the participant's own, 0 at first. */
void ck_bench_barrier_wait(void *at, unsigned int *sense, unsigned int participants)
{
    ck_barrier_centralized_state_t state = { .sense = *sense };
    ck_barrier_centralized(at, &state, participants);
    *sense = state.sense;
}

void ck_bench_ring_init(void *at) { ck_ring_init(&((struct ring *)at)->ring, PLACES); }

/* Values are the pointers that it carries. Waiting is the caller's. */
int ck_bench_ring_send(void *at, void *value)
{
    struct ring *it = at;
    return ck_ring_enqueue_mpsc(&it->ring, it->places, value);
}

int ck_bench_ring_receive(void *at, void **value)
{
    struct ring *it = at;
    return ck_ring_dequeue_mpsc(&it->ring, it->places, value);
}
