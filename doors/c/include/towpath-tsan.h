/* What ThreadSanitizer is told of Towpath's calls: the library itself is not instrumented.
 *
 * towpath.h includes this under -fsanitize=thread. A lock's place in memory orders its holders; all other primitives
 * of the process are taken as one, which hides some races of programs and reports none that is not there.
 */
#ifndef TOWPATH_TSAN_H
#define TOWPATH_TSAN_H

#ifdef __cplusplus
extern "C" {
#endif

void __tsan_acquire(void *at);
void __tsan_release(void *at);

#define TP_TSAN_ALL ((void *)tp_strerror(0))

static inline int tp_tsan_after(void *at, int result) {
    if (result == 0 || result == TP_EOWNERDEAD) __tsan_acquire(at);
    return result;
}

static inline int tp_tsan_mutex_lock(tp_mutex *mutex) {
    return tp_tsan_after(tp_mutex_value(mutex), tp_mutex_lock(mutex));
}
static inline int tp_tsan_mutex_trylock(tp_mutex *mutex) {
    return tp_tsan_after(tp_mutex_value(mutex), tp_mutex_trylock(mutex));
}
static inline int tp_tsan_mutex_timedlock(tp_mutex *mutex, uint64_t ns) {
    return tp_tsan_after(tp_mutex_value(mutex), tp_mutex_timedlock(mutex, ns));
}
static inline int tp_tsan_mutex_unlock(tp_mutex *mutex) {
    __tsan_release(tp_mutex_value(mutex));
    return tp_mutex_unlock(mutex);
}
static inline int tp_tsan_cond_wait(tp_cond *condition, tp_mutex *mutex, uint64_t ns) {
    int result;
    __tsan_release(tp_mutex_value(mutex));
    result = tp_cond_wait(condition, mutex, ns);
    if (result == TP_ETIMEDOUT) __tsan_acquire(tp_mutex_value(mutex));
    return tp_tsan_after(tp_mutex_value(mutex), result);
}
static inline int tp_tsan_rwlock_read(tp_rwlock *lock, uint64_t ns, tp_reading *reading) {
    return tp_tsan_after(tp_rwlock_value(lock), tp_rwlock_read(lock, ns, reading));
}
static inline int tp_tsan_rwlock_read_unlock(tp_rwlock *lock, tp_reading *reading) {
    __tsan_release(tp_rwlock_value(lock));
    return tp_rwlock_read_unlock(lock, reading);
}
static inline int tp_tsan_rwlock_write(tp_rwlock *lock, uint64_t ns) {
    return tp_tsan_after(tp_rwlock_value(lock), tp_rwlock_write(lock, ns));
}
static inline int tp_tsan_rwlock_write_unlock(tp_rwlock *lock) {
    __tsan_release(tp_rwlock_value(lock));
    return tp_rwlock_write_unlock(lock);
}
static inline int tp_tsan_sem_wait(tp_sem *semaphore, uint64_t ns) {
    return tp_tsan_after(TP_TSAN_ALL, tp_sem_wait(semaphore, ns));
}
static inline int tp_tsan_sem_release(tp_sem *semaphore) {
    __tsan_release(TP_TSAN_ALL);
    return tp_sem_release(semaphore);
}
static inline int tp_tsan_sem_add(tp_sem *semaphore, uint64_t permits) {
    __tsan_release(TP_TSAN_ALL);
    return tp_sem_add(semaphore, permits);
}
static inline int tp_tsan_barrier_wait(tp_barrier *barrier, uint64_t ns) {
    __tsan_release(TP_TSAN_ALL);
    return tp_tsan_after(TP_TSAN_ALL, tp_barrier_wait(barrier, ns));
}
static inline int tp_tsan_barrier_leave(tp_barrier *barrier) {
    __tsan_release(TP_TSAN_ALL);
    return tp_barrier_leave(barrier);
}
static inline int tp_tsan_event_set(tp_event *event) {
    __tsan_release(TP_TSAN_ALL);
    return tp_event_set(event);
}
static inline int tp_tsan_event_wait(tp_event *event, uint64_t ns) {
    return tp_tsan_after(TP_TSAN_ALL, tp_event_wait(event, ns));
}
static inline int tp_tsan_event_is_set(tp_event *event) {
    int is_set = tp_event_is_set(event);
    if (is_set == 1) __tsan_acquire(TP_TSAN_ALL);
    return is_set;
}
static inline int tp_tsan_sender_send(tp_sender *sender, const void *message, uint64_t ns) {
    __tsan_release(TP_TSAN_ALL);
    return tp_sender_send(sender, message, ns);
}
static inline int tp_tsan_receiver_receive(tp_receiver *receiver, void *message, uint64_t ns) {
    return tp_tsan_after(TP_TSAN_ALL, tp_receiver_receive(receiver, message, ns));
}
static inline int tp_tsan_receiver_lease(tp_receiver *receiver, uint64_t ns, const void **message, tp_lease *lease) {
    return tp_tsan_after(TP_TSAN_ALL, tp_receiver_lease(receiver, ns, message, lease));
}
static inline int tp_tsan_receiver_end(tp_receiver *receiver, tp_lease *lease, int done) {
    __tsan_release(TP_TSAN_ALL);
    return tp_receiver_end(receiver, lease, done);
}
static inline int tp_tsan_receiver_end_into(tp_receiver *receiver, tp_lease *lease, tp_sender *sender,
                                            const void *message, uint64_t ns) {
    __tsan_release(TP_TSAN_ALL);
    return tp_receiver_end_into(receiver, lease, sender, message, ns);
}
static inline int tp_tsan_poster_send(tp_poster *poster, const void *message, size_t bytes, uint64_t ns) {
    __tsan_release(TP_TSAN_ALL);
    return tp_poster_send(poster, message, bytes, ns);
}
static inline int tp_tsan_fetcher_receive(tp_fetcher *fetcher, uint64_t ns, const void **message, size_t *bytes,
                                          tp_message **out) {
    return tp_tsan_after(TP_TSAN_ALL, tp_fetcher_receive(fetcher, ns, message, bytes, out));
}
static inline void tp_tsan_message_done(tp_message *message) {
    __tsan_release(TP_TSAN_ALL);
    tp_message_done(message);
}
static inline int tp_tsan_writer_send(tp_writer *writer, const void *message, size_t bytes, uint64_t ns) {
    __tsan_release(TP_TSAN_ALL);
    return tp_writer_send(writer, message, bytes, ns);
}
static inline int tp_tsan_reader_receive(tp_reader *reader, uint64_t ns, const void **message, size_t *bytes,
                                         uint64_t *missed) {
    return tp_tsan_after(TP_TSAN_ALL, tp_reader_receive(reader, ns, message, bytes, missed));
}
static inline int tp_tsan_world_barrier(tp_world *world) {
    __tsan_release(TP_TSAN_ALL);
    return tp_tsan_after(TP_TSAN_ALL, tp_world_barrier(world));
}

#define tp_mutex_lock(mutex) tp_tsan_mutex_lock(mutex)
#define tp_mutex_trylock(mutex) tp_tsan_mutex_trylock(mutex)
#define tp_mutex_timedlock(mutex, ns) tp_tsan_mutex_timedlock(mutex, ns)
#define tp_mutex_unlock(mutex) tp_tsan_mutex_unlock(mutex)
#define tp_cond_wait(condition, mutex, ns) tp_tsan_cond_wait(condition, mutex, ns)
#define tp_rwlock_read(lock, ns, reading) tp_tsan_rwlock_read(lock, ns, reading)
#define tp_rwlock_read_unlock(lock, reading) tp_tsan_rwlock_read_unlock(lock, reading)
#define tp_rwlock_write(lock, ns) tp_tsan_rwlock_write(lock, ns)
#define tp_rwlock_write_unlock(lock) tp_tsan_rwlock_write_unlock(lock)
#define tp_sem_wait(semaphore, ns) tp_tsan_sem_wait(semaphore, ns)
#define tp_sem_release(semaphore) tp_tsan_sem_release(semaphore)
#define tp_sem_add(semaphore, permits) tp_tsan_sem_add(semaphore, permits)
#define tp_barrier_wait(barrier, ns) tp_tsan_barrier_wait(barrier, ns)
#define tp_barrier_leave(barrier) tp_tsan_barrier_leave(barrier)
#define tp_event_set(event) tp_tsan_event_set(event)
#define tp_event_wait(event, ns) tp_tsan_event_wait(event, ns)
#define tp_event_is_set(event) tp_tsan_event_is_set(event)
#define tp_sender_send(sender, message, ns) tp_tsan_sender_send(sender, message, ns)
#define tp_receiver_receive(receiver, message, ns) tp_tsan_receiver_receive(receiver, message, ns)
#define tp_receiver_lease(receiver, ns, message, lease) tp_tsan_receiver_lease(receiver, ns, message, lease)
#define tp_receiver_end(receiver, lease, done) tp_tsan_receiver_end(receiver, lease, done)
#define tp_receiver_end_into(receiver, lease, sender, message, ns) \
    tp_tsan_receiver_end_into(receiver, lease, sender, message, ns)
#define tp_poster_send(poster, message, bytes, ns) tp_tsan_poster_send(poster, message, bytes, ns)
#define tp_fetcher_receive(fetcher, ns, message, bytes, out) tp_tsan_fetcher_receive(fetcher, ns, message, bytes, out)
#define tp_message_done(message) tp_tsan_message_done(message)
#define tp_writer_send(writer, message, bytes, ns) tp_tsan_writer_send(writer, message, bytes, ns)
#define tp_reader_receive(reader, ns, message, bytes, missed) tp_tsan_reader_receive(reader, ns, message, bytes, missed)
#define tp_world_barrier(world) tp_tsan_world_barrier(world)

#ifdef __cplusplus
}
#endif

#endif
