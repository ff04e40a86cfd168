/* Loops of calls, for examples/cost.rs, which loads this as a shared library beside libtowpath.so. */
#include "towpath.h"

void cost_mutex(tp_mutex *mutex, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) {
        tp_mutex_lock(mutex);
        tp_mutex_unlock(mutex);
    }
}
void cost_read(tp_rwlock *lock, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) {
        tp_reading reading;
        tp_rwlock_read(lock, TP_FOREVER, &reading);
        tp_rwlock_read_unlock(lock, &reading);
    }
}
void cost_write(tp_rwlock *lock, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) {
        tp_rwlock_write(lock, TP_FOREVER);
        tp_rwlock_write_unlock(lock);
    }
}
void cost_cond(tp_cond *condition, tp_mutex *mutex, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) {
        tp_mutex_lock(mutex);
        tp_cond_wait(condition, mutex, 0);
        tp_cond_signal(condition);
        tp_mutex_unlock(mutex);
    }
}
void cost_signal(tp_cond *condition, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) tp_cond_signal(condition);
}
void cost_sem(tp_sem *semaphore, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) {
        tp_sem_wait(semaphore, TP_FOREVER);
        tp_sem_release(semaphore);
    }
}
void cost_barrier(tp_barrier *barrier, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) tp_barrier_wait(barrier, TP_FOREVER);
}
void cost_event(tp_event *event, uint64_t rounds) {
    for (uint64_t k = 0; k < rounds; k++) {
        tp_event_set(event);
        tp_event_wait(event, TP_FOREVER);
        tp_event_reset(event);
    }
}
void cost_queue(tp_sender *sender, tp_receiver *receiver, uint64_t rounds) {
    uint64_t message[8] = {0};
    for (uint64_t k = 0; k < rounds; k++) {
        tp_sender_send(sender, message, TP_FOREVER);
        tp_receiver_receive(receiver, message, TP_FOREVER);
    }
}
void cost_ring(tp_writer *writer, tp_reader *reader, uint64_t rounds) {
    char message[64] = {0};
    const void *at;
    size_t bytes;
    for (uint64_t k = 0; k < rounds; k++) {
        tp_writer_send(writer, message, sizeof message, TP_FOREVER);
        tp_reader_receive(reader, TP_FOREVER, &at, &bytes, 0);
    }
}
