/* Towpath for C: primitives in shared memory that survive the deaths of their users.
 *
 * docs/c.md tells how to begin. `scripts/install-c.sh` makes the manual's pages out of this file:
 * a comment that begins with "@page" begins one. A test compares each declaration with the library.
 */
#ifndef TOWPATH_H
#define TOWPATH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* @page towpath - primitives in shared memory that survive the deaths of their users
 *
 * A primitive lies in memory that the program has mapped, for example by mmap() with MAP_SHARED, or
 * in a world that processes find by name (tp_world). Processes may be killed or stopped at any
 * instruction: no survivor waits for a dead process, and each death is told where data may be half
 * changed.
 *
 * Each process opens a primitive for itself and gets a handle, a pointer that means nothing to other
 * processes. All threads of the process may use it. A handle takes one of the primitive's places
 * for users until it is closed or its process dies. A forked child has no handle: its copies answer
 * TP_ENOTENTERED, may be closed, and the child opens the primitive for itself.
 *
 * For each primitive in the caller's memory there are
 *
 *   tp_X_size           the number of bytes that it takes
 *   tp_X_init           makes it, whatever was in the memory before
 *   tp_X_open           opens it
 *   tp_X_open_or_init   opens it, or makes it if the memory is still zeroed: the same call in each
 *                       process, at any time
 *   tp_X_close          ends the handle
 *
 * The caller guarantees that the memory stays mapped, readable and writable until all handles are
 * closed; that no program accesses it otherwise; and that no handle exists when tp_X_init is called.
 * The memory may begin anywhere, and lie at different addresses in different processes, which have
 * to be of one pid namespace. The memory says what it holds and in which version: another type,
 * another version or damaged memory is refused with an error.
 *
 * Times are nanoseconds from the call on: 0 tries once, TP_FOREVER waits for ever.
 *
 * Calls that return int return 0, or a negative error (TP_E…), of which tp_strerror() is the
 * sentence. No call unwinds or ends the process. In signal handlers only tp_strerror(),
 * tp_event_set() and tp_event_is_set() may be called.
 *
 * A handle that is closed, or not closed yet, by another thread at the same time must not be used.
 * One of a writer or reader of a ring is for one thread at a time.
 */

/* Time that never ends. */
#define TP_FOREVER UINT64_MAX

/* Users for whom tp_X_init makes places where the caller has no better number. */
#define TP_USERS 64

/* Errors. */
enum {
    TP_EOWNERDEAD = -1, /* the last owner died, data may be half changed; the caller HAS the lock */
    TP_ETIMEDOUT = -2, /* the time was over */
    TP_ENOTENTERED = -3, /* this process is no user: after a fork the child opens the object itself */
    TP_ECAPACITY = -4, /* more processes or threads than there are places */
    TP_EPOISONED = -5, /* the data were declared beyond repair */
    TP_EABANDONED = -6, /* a process died in a way that can't be repaired */
    TP_EPEERDIED = -7, /* a participant, or the last process on the other side, died */
    TP_ECLOSED = -8, /* the queue was closed */
    TP_EDISCONNECTED = -9, /* the other side of the queue has gone */
    TP_ETAKEN = -10, /* there may be one only, and it is there */
    TP_ETOOLONG = -11, /* the message is longer than the ring, or a buffer of the queue, can carry */
    TP_EDAMAGED = -12, /* the memory contradicts itself */
    TP_EVERSION = -13, /* another version's layout */
    TP_ETYPE = -14, /* an object of another type or size */
    TP_ENOTFOUND = -15, /* no such object or world */
    TP_ENOTMADE = -16, /* the memory holds no object */
    TP_EROOM = -17, /* the memory is too small */
    TP_ERANGE = -18, /* a number is out of range */
    TP_EFULL = -19, /* all places for users, or for objects, are taken */
    TP_EUNFINISHED = -20, /* the process that makes the object died or is still at it */
    TP_ENAMESPACE = -21, /* memory of another pid or time namespace */
    TP_EEXISTS = -22, /* taken by a living process */
    TP_ESYSTEM = -23, /* the operating system refused */
    TP_EINVALID = -24, /* a null pointer, or a name that can't be one */
    TP_EPERM = -25, /* the calling thread does not hold it */
    TP_EDEADLOCK = -26, /* the calling thread holds it already */
    TP_EAPART = -27, /* condition and mutex lie in different memories */
    TP_EPANIC = -28, /* a fault in Towpath itself */
    TP_ENOTLAUNCHED = -29, /* not started by `towpath run` */
    TP_EMEMORY = -30, /* too little shared memory */
    TP_EBUSY = -31, /* the endpoint runs a handler, or is in use */
    TP_ENOTSENT = -32 /* a message can't go out now */
};

/* @page tp_strerror - sentences of Towpath's errors
 *
 * Errors are the negative numbers TP_E… of towpath(3).
 */

/* Returns the sentence of an error, which is constant. */
const char *tp_strerror(int error);
/* Returns the sentence of the calling thread's last error of a call that opens or makes something,
 * with names and numbers. Valid until the thread's next one; empty if there was none. */
const char *tp_last_error(void);
/* Returns the version of the layouts in memory that this library reads and writes. */
uint32_t tp_layout_version(void);

/* @page tp_mutex - robust mutex in shared memory
 *
 * A mutex has one holder. If that dies, the next owner gets the mutex at once, with TP_EOWNERDEAD:
 * it repairs the data and calls tp_mutex_consistent(). One that unlocks without leaves the repair to
 * the next owner, which is told again.
 *
 * The thread that locks also unlocks. A handle that is closed while its process holds the mutex
 * counts as a death. The mutex is not recursive: a thread that locks it a second time by one handle
 * gets TP_EDEADLOCK.
 *
 * Beside the program's own data a mutex has a value of 64 bits. To Rust programs it is a Mutex<u64>.
 */

/* A process's handle of a mutex. */
typedef struct tp_mutex tp_mutex;

/* Returns the number of bytes for a mutex that so many handles have open at a time, with so many
 * conditions (tp_cond). */
size_t tp_mutex_size(uint32_t users, uint32_t conditions);
/* Makes a mutex in this memory. */
int tp_mutex_init(void *at, size_t room, uint32_t users, tp_mutex **out);
/* Opens the mutex in this memory. */
int tp_mutex_open(void *at, size_t room, tp_mutex **out);
/* Opens the mutex in this memory, or makes it if the memory is zeroed. */
int tp_mutex_open_or_init(void *at, size_t room, uint32_t users, tp_mutex **out);
/* Ends the handle; NULL is none. */
void tp_mutex_close(tp_mutex *mutex);
/* Acquires. With TP_EOWNERDEAD the caller has the mutex, and repairs. */
int tp_mutex_lock(tp_mutex *mutex);
/* Acquires if the mutex is free, or its holder is found dead; TP_ETIMEDOUT otherwise. */
int tp_mutex_trylock(tp_mutex *mutex);
/* Acquires as tp_mutex_lock(); gives up with TP_ETIMEDOUT. */
int tp_mutex_timedlock(tp_mutex *mutex, uint64_t ns);
/* Releases; TP_EPERM if the thread does not hold it by this handle. */
int tp_mutex_unlock(tp_mutex *mutex);
/* Declares the data consistent after TP_EOWNERDEAD. */
int tp_mutex_consistent(tp_mutex *mutex);
/* Returns the place of the value, which only the holder may touch. */
uint64_t *tp_mutex_value(tp_mutex *mutex);

/* @page tp_cond - condition variable beside a mutex in shared memory
 *
 * A condition lies beside its mutex: tp_mutex_size() is told how many there are to be, and
 * tp_cond_open() makes or finds them by name. A notification whose waiter dies with it goes to
 * another waiter.
 */

/* A process's handle of a condition. */
typedef struct tp_cond tp_cond;

/* Opens the condition of that name (at most 32 bytes) beside the mutex; makes it if there is none. */
int tp_cond_open(tp_mutex *mutex, const char *name, tp_cond **out);
/* Ends the handle; NULL is none. */
void tp_cond_close(tp_cond *condition);
/* Releases the mutex, waits until notified, and acquires the mutex again. May wake for no reason.
 * After 0, TP_ETIMEDOUT and TP_EOWNERDEAD the caller has the mutex; after other errors not. */
int tp_cond_wait(tp_cond *condition, tp_mutex *mutex, uint64_t ns);
/* Notifies the waiter that has waited longest. */
int tp_cond_signal(tp_cond *condition);
/* Notifies all waiters. */
int tp_cond_broadcast(tp_cond *condition);

/* @page tp_rwlock - readers-writer lock in shared memory
 *
 * Many read, or one writes. Dead readers are removed. After the death of a writer the next that
 * acquires, for reading or for writing, gets TP_EOWNERDEAD and has the lock for writing: it repairs
 * the data, calls tp_rwlock_consistent() and tp_rwlock_write_unlock().
 *
 * To Rust programs it is an RwLock<u64>.
 */

/* A process's handle of a readers-writer lock. */
typedef struct tp_rwlock tp_rwlock;
/* A reader's state: of the thread that reads, from tp_rwlock_read() to tp_rwlock_read_unlock(). */
typedef struct tp_reading {
    uint64_t words[2];
} tp_reading;

/* Returns the number of bytes for a lock that so many handles have open at a time. */
size_t tp_rwlock_size(uint32_t users);
/* Makes a lock in this memory. */
int tp_rwlock_init(void *at, size_t room, uint32_t users, tp_rwlock **out);
/* Opens the lock in this memory. */
int tp_rwlock_open(void *at, size_t room, tp_rwlock **out);
/* Opens the lock in this memory, or makes it if the memory is zeroed. */
int tp_rwlock_open_or_init(void *at, size_t room, uint32_t users, tp_rwlock **out);
/* Ends the handle; NULL is none. */
void tp_rwlock_close(tp_rwlock *lock);
/* Acquires for reading. With TP_EOWNERDEAD the caller has the lock for writing, to repair. */
int tp_rwlock_read(tp_rwlock *lock, uint64_t ns, tp_reading *reading);
/* Releases as a reader; TP_EPERM if that was done already, or if no call has filled the state. */
int tp_rwlock_read_unlock(tp_rwlock *lock, tp_reading *reading);
/* Acquires for writing. With TP_EOWNERDEAD the caller has the lock, and repairs. */
int tp_rwlock_write(tp_rwlock *lock, uint64_t ns);
/* Releases as a writer; TP_EPERM if the thread does not write by this handle. */
int tp_rwlock_write_unlock(tp_rwlock *lock);
/* Declares the data consistent after TP_EOWNERDEAD. */
int tp_rwlock_consistent(tp_rwlock *lock);
/* Returns the place of the value, which readers may read and the writer may change. */
uint64_t *tp_rwlock_value(tp_rwlock *lock);

/* @page tp_sem - semaphore in shared memory whose permits come back from the dead
 *
 * Up to 64 processes hold permits at a time, each up to a thousand. Permits of a process that dies
 * come back.
 */

/* A process's handle of a semaphore. */
typedef struct tp_sem tp_sem;

/* Returns the number of bytes for a semaphore that so many handles have open at a time. */
size_t tp_sem_size(uint32_t users);
/* Makes a semaphore with so many permits, at most 1,048,575, in this memory. */
int tp_sem_init(void *at, size_t room, uint32_t users, uint64_t permits, tp_sem **out);
/* Opens the semaphore in this memory. */
int tp_sem_open(void *at, size_t room, tp_sem **out);
/* Opens the semaphore in this memory, or makes it if the memory is zeroed. */
int tp_sem_open_or_init(void *at, size_t room, uint32_t users, uint64_t permits, tp_sem **out);
/* Ends the handle; NULL is none. */
void tp_sem_close(tp_sem *semaphore);
/* Takes a permit. */
int tp_sem_wait(tp_sem *semaphore, uint64_t ns);
/* Gives a permit of this handle back; TP_EPERM if it has none. */
int tp_sem_release(tp_sem *semaphore);
/* Adds permits that no process held. There are at most 1,048,575 in all: more are not added. */
int tp_sem_add(tp_sem *semaphore, uint64_t permits);
/* Returns the number of free permits, after those of the dead have been taken back. */
uint64_t tp_sem_available(tp_sem *semaphore);

/* @page tp_barrier - barrier in shared memory that tells survivors of a death
 *
 * Each thread that calls tp_barrier_wait() is a participant, up to 64. If a participant dies, all
 * that wait get TP_EPEERDIED, once; the next episode is among the survivors.
 */

/* A process's handle of a barrier. */
typedef struct tp_barrier tp_barrier;

/* Returns the number of bytes for a barrier that so many handles have open at a time. */
size_t tp_barrier_size(uint32_t users);
/* Makes a barrier for so many participants, 1 to 64, in this memory. */
int tp_barrier_init(void *at, size_t room, uint32_t users, size_t participants, tp_barrier **out);
/* Opens the barrier in this memory. */
int tp_barrier_open(void *at, size_t room, tp_barrier **out);
/* Opens the barrier in this memory, or makes it if the memory is zeroed. TP_ETYPE also if it is for
 * another number of participants. */
int tp_barrier_open_or_init(void *at, size_t room, uint32_t users, size_t participants, tp_barrier **out);
/* Ends the handle; NULL is none. */
void tp_barrier_close(tp_barrier *barrier);
/* Takes this thread's place without arriving, so that the others learn of its death before it
 * arrives for the first time. */
int tp_barrier_join(tp_barrier *barrier);
/* Arrives, and waits until all participants have arrived. After TP_ETIMEDOUT the thread has arrived,
 * and waits for the same episode when it comes again. */
int tp_barrier_wait(tp_barrier *barrier, uint64_t ns);
/* Arrives without waiting, and gives this thread's place up: no later episode waits for it, and no
 * participant is told of its death. It, or another thread, may take the place by coming. TP_EPERM if
 * it has none. */
int tp_barrier_leave(tp_barrier *barrier);

/* @page tp_event - flag in shared memory that waiters wait for
 *
 * An event has no owner: if the only process that would set it dies, waiters wait until their time
 * is over.
 */

/* A process's handle of an event. */
typedef struct tp_event tp_event;

/* Returns the number of bytes for an event that so many handles have open at a time. */
size_t tp_event_size(uint32_t users);
/* Makes an event, not set, in this memory. */
int tp_event_init(void *at, size_t room, uint32_t users, tp_event **out);
/* Opens the event in this memory. */
int tp_event_open(void *at, size_t room, tp_event **out);
/* Opens the event in this memory, or makes it if the memory is zeroed. */
int tp_event_open_or_init(void *at, size_t room, uint32_t users, tp_event **out);
/* Ends the handle; NULL is none. */
void tp_event_close(tp_event *event);
/* Sets it, and wakes all that wait for it. May be called in signal handlers. */
int tp_event_set(tp_event *event);
/* Resets it. Returns 1 if it was set, 0 if not. */
int tp_event_reset(tp_event *event);
/* Returns 1 if it is set, 0 if not. May be called in signal handlers. */
int tp_event_is_set(tp_event *event);
/* Waits until it is set, or has been set since the call began. */
int tp_event_wait(tp_event *event, uint64_t ns);

/* @page tp_queue - bounded queue in shared memory of messages of one size
 *
 * A message has from 1 to 65,536 bytes, and all of a queue have the same number. Many send and many
 * receive (TP_MPMC), or many send and one receives (TP_MPSC), or one each (TP_SPSC): where there may
 * be one only, TP_ETAKEN is the answer while it lives, and one thread at a time uses it. What a sender has sent is received, also if it dies;
 * what it was about to send is not. When the last receiver has gone, senders get TP_EDISCONNECTED,
 * or TP_EPEERDIED if it died and the queue is full; receivers likewise after all that was sent.
 *
 * A receiver that dies takes the message with it that it was receiving, unless it has it under a
 * lease (tp_receiver_lease(); not with TP_SPSC, where that is TP_ERANGE): then the message comes in
 * again, for another receiver.
 *
 * All that open a queue give the same kind, size of a message and capacity. To Rust programs it is a
 * queue of [u64; N] where the size is a multiple of 8, of [u8; N] otherwise.
 */

/* Kinds of queues. */
enum {
    TP_MPMC = 0, /* many senders, many receivers */
    TP_MPSC = 1, /* many senders, one receiver */
    TP_SPSC = 2 /* one sender, one receiver */
};

/* A process's handle of a queue. */
typedef struct tp_queue tp_queue;
/* A sender, for all threads of a process. */
typedef struct tp_sender tp_sender;
/* A receiver, for all threads of a process. */
typedef struct tp_receiver tp_receiver;
/* A receiver's lease of a message. */
typedef struct tp_lease {
    uint64_t words[2];
} tp_lease;

/* Returns the number of bytes for a queue that so many handles have open at a time, with room for so
 * many messages; 0 if there can be no such queue. */
size_t tp_queue_size(uint32_t users, int kind, size_t message, size_t capacity);
/* Makes a queue in this memory. */
int tp_queue_init(void *at, size_t room, uint32_t users, int kind, size_t message, size_t capacity, tp_queue **out);
/* Opens the queue in this memory. It has the room that it was made with, whatever `capacity` says. */
int tp_queue_open(void *at, size_t room, int kind, size_t message, size_t capacity, tp_queue **out);
/* Opens the queue in this memory, or makes it, with room for so many messages, if the memory is
 * zeroed. */
int tp_queue_open_or_init(void *at, size_t room, uint32_t users, int kind, size_t message, size_t capacity, tp_queue **out);
/* Ends the handle; its senders and receivers stay. NULL is none. */
void tp_queue_close(tp_queue *queue);
/* Makes a sender. */
int tp_sender_open(tp_queue *queue, tp_sender **out);
/* Sends a message, when there is room for it. */
int tp_sender_send(tp_sender *sender, const void *message, uint64_t ns);
/* Closes the queue: nothing more can be sent, what was sent is received. */
int tp_sender_shut(tp_sender *sender);
/* Ends the sender; NULL is none. */
void tp_sender_close(tp_sender *sender);
/* Makes a receiver. */
int tp_receiver_open(tp_queue *queue, tp_receiver **out);
/* Receives a message, when there is one. */
int tp_receiver_receive(tp_receiver *receiver, void *message, uint64_t ns);
/* Receives a message under a lease, when there is one, and leaves it where it lies, aligned to 8
 * bytes, until the lease is ended. */
int tp_receiver_lease(tp_receiver *receiver, uint64_t ns, const void **message, tp_lease *lease);
/* Ends a lease: done, 1: the message is done with; 0: it comes in again, behind those that wait. A
 * lease that was ended already is left as it is. */
int tp_receiver_end(tp_receiver *receiver, tp_lease *lease, int done);
/* Ends a lease and sends a message into another queue of the same world, when there is room: both
 * happen, or, if it fails or the process dies, neither. Not into a queue of kind TP_SPSC. */
int tp_receiver_end_into(tp_receiver *receiver, tp_lease *lease, tp_sender *sender, const void *message, uint64_t ns);
/* Returns the number of messages that wait. */
size_t tp_receiver_waiting(tp_receiver *receiver);
/* Closes the queue: nothing more can be sent, what was sent is received. */
int tp_receiver_shut(tp_receiver *receiver);
/* Ends the receiver; NULL is none. */
void tp_receiver_close(tp_receiver *receiver);

/* @page tp_messages - queue in shared memory of messages of any length
 *
 * Many send and many receive messages of 0 bytes up to the size of a buffer. A message of up to 232
 * bytes lies in the queue itself; a longer one takes one of the queue's buffers until it is done
 * with. Messages are sent whole, or, if the sender dies, not at all. One that its receiver has not
 * done with when it dies comes in again, for another receiver, behind those that wait.
 *
 * A queue of messages that is there already keeps its sizes.
 */

/* A process's handle of a queue of messages. */
typedef struct tp_messages tp_messages;
/* A sender of messages, for all threads of a process. */
typedef struct tp_poster tp_poster;
/* A receiver of messages, for all threads of a process. */
typedef struct tp_fetcher tp_fetcher;
/* A message that was received: for one thread at a time. */
typedef struct tp_message tp_message;

/* Returns the number of bytes for a queue with room for so many messages, and so many buffers of so
 * many bytes; 0 if there can be no such queue. */
size_t tp_messages_size(uint32_t users, size_t capacity, size_t buffers, size_t buffer_bytes);
/* Makes a queue of messages in this memory. */
int tp_messages_init(void *at, size_t room, uint32_t users, size_t capacity, size_t buffers, size_t buffer_bytes, tp_messages **out);
/* Opens the queue of messages in this memory. */
int tp_messages_open(void *at, size_t room, size_t capacity, size_t buffers, size_t buffer_bytes, tp_messages **out);
/* Opens the queue of messages in this memory, or makes it if the memory is zeroed. */
int tp_messages_open_or_init(void *at, size_t room, uint32_t users, size_t capacity, size_t buffers, size_t buffer_bytes, tp_messages **out);
/* Returns the number of bytes of the longest possible message. */
size_t tp_messages_longest(tp_messages *messages);
/* Ends the handle; its senders and receivers stay. NULL is none. */
void tp_messages_close(tp_messages *messages);
/* Makes a sender. */
int tp_poster_open(tp_messages *messages, tp_poster **out);
/* Sends a message, when there is room for it, and a buffer if it needs one. */
int tp_poster_send(tp_poster *poster, const void *message, size_t bytes, uint64_t ns);
/* Closes the queue: nothing more can be sent, what was sent is received. */
int tp_poster_shut(tp_poster *poster);
/* Ends the sender; NULL is none. */
void tp_poster_close(tp_poster *poster);
/* Makes a receiver. */
int tp_fetcher_open(tp_messages *messages, tp_fetcher **out);
/* Receives a message, when there is one: it stays where it lies until its handle is ended. */
int tp_fetcher_receive(tp_fetcher *fetcher, uint64_t ns, const void **message, size_t *bytes, tp_message **out);
/* Returns the number of messages that wait. */
size_t tp_fetcher_waiting(tp_fetcher *fetcher);
/* Ends the receiver; NULL is none. Messages that it has received stay. */
void tp_fetcher_close(tp_fetcher *fetcher);
/* Says that a message is done with; NULL is none. */
void tp_message_done(tp_message *message);
/* Gives a message back: it comes in again, behind those that wait. */
void tp_message_give_back(tp_message *message);

/* @page tp_broadcast - ring in shared memory of messages from one writer to many readers
 *
 * Messages have any length. Each of up to 64 readers gets all that is sent after it came. Slow
 * readers hold the writer back; in a lossy ring they are told how many messages they missed. Dead
 * readers are dropped; a dead writer is told to the readers as TP_EPEERDIED after all that it sent.
 */

/* A process's handle of a ring. */
typedef struct tp_broadcast tp_broadcast;
/* The writer of a ring: for one thread at a time. */
typedef struct tp_writer tp_writer;
/* A reader of a ring: for one thread at a time. */
typedef struct tp_reader tp_reader;

/* Returns the number of bytes for a ring of so many bytes, of which each message takes 16 more than
 * its own; 0 if there can be no such ring. */
size_t tp_broadcast_size(uint32_t users, size_t bytes);
/* Makes a ring in this memory; lossy: 1, or 0. */
int tp_broadcast_init(void *at, size_t room, uint32_t users, size_t bytes, int lossy, tp_broadcast **out);
/* Opens the ring in this memory. */
int tp_broadcast_open(void *at, size_t room, size_t bytes, int lossy, tp_broadcast **out);
/* Opens the ring in this memory, or makes it if the memory is zeroed. */
int tp_broadcast_open_or_init(void *at, size_t room, uint32_t users, size_t bytes, int lossy, tp_broadcast **out);
/* Ends the handle; its writer and readers stay. NULL is none. */
void tp_broadcast_close(tp_broadcast *ring);
/* Makes the writer; TP_ETAKEN while there is another one. */
int tp_writer_open(tp_broadcast *ring, tp_writer **out);
/* Sends a message to all readers that are there, when there is room for it. */
int tp_writer_send(tp_writer *writer, const void *message, size_t bytes, uint64_t ns);
/* Returns the number of readers; one that died counts until it is dropped. */
size_t tp_writer_readers(tp_writer *writer);
/* Drops the dead readers. Returns 1 if one died that was not told yet, 0 if not. */
int tp_writer_lost_reader(tp_writer *writer);
/* Closes the ring: nothing more can be sent. */
int tp_writer_shut(tp_writer *writer);
/* Ends the writer; NULL is none. */
void tp_writer_close(tp_writer *writer);
/* Makes a reader. */
int tp_reader_open(tp_broadcast *ring, tp_reader **out);
/* Receives the next message, which stays valid until the reader's next call, and the number of
 * messages that were missed before it (NULL: not asked for). */
int tp_reader_receive(tp_reader *reader, uint64_t ns, const void **message, size_t *bytes, uint64_t *missed);
/* Ends the reader; NULL is none. */
void tp_reader_close(tp_reader *reader);

/* @page tp_world - processes that find each other and their objects by name
 *
 * A world is a segment of memory with ranks, one for each process. `towpath run -n 4 PROGRAM` starts
 * a program as the ranks of a new world, which tp_world_join() joins; others are made and opened by
 * name. C programs and Rust programs of one world share its objects by name; each of the functions
 * for an object opens it, or makes it if there is none. Names have at most 32 bytes.
 *
 * A handle of an object keeps the process in the world. In a forked child tp_world_enter() takes a
 * rank of its own for the parent's handle; the child then opens its objects.
 */

/* A process's handle of a world. */
typedef struct tp_world tp_world;

/* Joins the world for which `towpath run` started this process. */
int tp_world_join(tp_world **out);
/* Makes a world of that name (NULL: of none, for threads and forked children) for so many processes,
 * with so many bytes for objects (0: the usual number), and enters it. */
int tp_world_create(const char *name, uint32_t processes, uint64_t object_bytes, tp_world **out);
/* Makes a world as tp_world_create() does, whose ranks have endpoints (tp_endpoint) with segments of
 * so many bytes. `towpath run` makes such worlds. */
int tp_world_create_with_endpoints(const char *name, uint32_t processes, uint64_t segment_bytes, uint64_t object_bytes, tp_world **out);
/* Opens the world of that name and enters it. */
int tp_world_open(const char *name, tp_world **out);
/* Returns the number of bytes for a world with so many bytes of objects in the caller's memory. */
size_t tp_world_size_in(uint32_t processes, uint64_t object_bytes);
/* Makes a world in this memory and enters it. */
int tp_world_init_in(void *at, size_t room, uint32_t processes, tp_world **out);
/* Opens the world in this memory and enters it. */
int tp_world_open_in(void *at, size_t room, tp_world **out);
/* Opens the world in this memory, or makes it if the memory is zeroed, and enters it. */
int tp_world_open_or_init_in(void *at, size_t room, uint32_t processes, tp_world **out);
/* Enters the world in a forked child, by the parent's handle. */
int tp_world_enter(tp_world *world);
/* Ends the handle; NULL is none. */
void tp_world_close(tp_world *world);
/* Returns this process's rank, or an error. */
int tp_world_rank(tp_world *world);
/* Returns the number of ranks. */
uint32_t tp_world_size(tp_world *world);
/* Asks the kernel whether the process of a rank is there and alive. Returns 1, or 0. */
int tp_world_is_alive(tp_world *world, uint32_t rank);
/* Asks the kernel for deaths. Returns the number of those noted so far in the world. */
uint64_t tp_world_deaths(tp_world *world);
/* Waits until all ranks are here; TP_EPEERDIED if one died: the next barrier is among the others. */
int tp_world_barrier(tp_world *world);
/* Opens a mutex by name. */
int tp_world_mutex(tp_world *world, const char *name, uint64_t value, tp_mutex **out);
/* Opens a readers-writer lock by name. */
int tp_world_rwlock(tp_world *world, const char *name, uint64_t value, tp_rwlock **out);
/* Opens a condition by name, for any mutex of this handle of the world. */
int tp_world_cond(tp_world *world, const char *name, tp_cond **out);
/* Opens a semaphore by name. */
int tp_world_sem(tp_world *world, const char *name, uint64_t permits, tp_sem **out);
/* Opens a barrier by name. TP_ETYPE also if it is for another number of participants. */
int tp_world_barrier_of(tp_world *world, const char *name, size_t participants, tp_barrier **out);
/* Opens an event by name. */
int tp_world_event(tp_world *world, const char *name, tp_event **out);
/* Opens a queue by name. */
int tp_world_queue(tp_world *world, const char *name, int kind, size_t message, size_t capacity, tp_queue **out);
/* Opens a queue of messages by name. */
int tp_world_messages(tp_world *world, const char *name, size_t capacity, size_t buffers, size_t buffer_bytes, tp_messages **out);
/* Opens a broadcast ring by name. */
int tp_world_broadcast(tp_world *world, const char *name, size_t bytes, int lossy, tp_broadcast **out);

/* A process's handle of plain bytes in a world: a table, an array. Those of Python's world.array()
 * and Rust's World::bytes() are the same. The program says who may write them when, as by a mutex. */
typedef struct tp_bytes tp_bytes;
/* Opens bytes by name; new ones are zeroed. TP_ETYPE if there are others of that name, or not so
 * many. */
int tp_world_bytes(tp_world *world, const char *name, size_t bytes, tp_bytes **out);
/* Returns the address of the first byte, a multiple of 64, for as long as the handle is open; NULL for
 * none. Each process has another address. */
void *tp_bytes_at(tp_bytes *bytes);
/* Ends the handle; NULL is none. */
void tp_bytes_close(tp_bytes *bytes);

/* @page tp_endpoint - endpoints of Active Messages
 *
 * A message names a handler of its destination, which runs there when that polls, waits or is at the
 * barrier of endpoints. A handler of a request may reply once; it sends nothing else, does not poll,
 * does not unwind (no exceptions, no longjmp), and keeps no pointer to its token. Messages that can't
 * be delivered, as those to a dead rank, come back to handler 0. AM-II programs have am2.h instead.
 *
 * An endpoint is for the thread that opens it. Its world is one of `towpath run`, or of
 * tp_world_create_with_endpoints().
 */

/* An endpoint of this process. */
typedef struct tp_endpoint tp_endpoint;
/* A message, as long as its handler runs. */
typedef struct tp_token tp_token;
/* A handler, with the context that it was set with. */
typedef void (*tp_handler)(tp_token *token, void *context);

/* Opens an endpoint of this process, with the world's segment for it if there is one. */
int tp_endpoint_open(tp_world *world, tp_endpoint **out);
/* Ends the endpoint: messages that it has not handled come back to their senders. NULL is none. */
void tp_endpoint_close(tp_endpoint *endpoint);
/* Waits for an endpoint of each rank that lives: from then on messages go to ranks by number. */
int tp_endpoint_map_world(tp_endpoint *endpoint);
/* Sets handler `index`; NULL clears it. Handler 0 gets messages that came back. */
int tp_endpoint_set_handler(tp_endpoint *endpoint, uint8_t index, tp_handler handler, void *context);
/* Sends a request with up to 16 arguments. */
int tp_endpoint_request(tp_endpoint *endpoint, uint32_t to, uint8_t handler, const uint32_t *args, size_t count);
/* Sends a request with arguments, and bytes for the handler: at most a block (32 KiB usually). */
int tp_endpoint_request_medium(tp_endpoint *endpoint, uint32_t to, uint8_t handler, const uint32_t *args, size_t count, const void *payload, size_t length);
/* Stores bytes in the destination's segment, then runs the handler there. */
int tp_endpoint_request_long(tp_endpoint *endpoint, uint32_t to, uint8_t handler, const uint32_t *args, size_t count, const void *payload, size_t length, uint64_t offset);
/* Handles the messages that are there. Returns their number, or an error. */
int tp_endpoint_poll(tp_endpoint *endpoint);
/* Waits until a message is there to be handled. */
int tp_endpoint_wait(tp_endpoint *endpoint, uint64_t ns);
/* Waits until all ranks are here, and handles messages meanwhile. */
int tp_endpoint_barrier(tp_endpoint *endpoint);
/* Returns the number of bytes of the endpoint's segment. */
uint64_t tp_endpoint_segment_size(tp_endpoint *endpoint);
/* Copies bytes out of the endpoint's segment. */
int tp_endpoint_segment_read(tp_endpoint *endpoint, uint64_t offset, void *to, size_t length);
/* Returns the arguments of a message, and their number. */
const uint32_t *tp_token_args(tp_token *token, size_t *count);
/* Returns the bytes of a medium message, and their number; of other messages there are none. */
const void *tp_token_bytes(tp_token *token, size_t *length);
/* Tells where the bytes of a long message lie in the segment. Returns 1, or 0: it is no long one. */
int tp_token_stored(tp_token *token, uint64_t *offset, uint64_t *length);
/* Returns 1 for a request, 0 for a reply. */
int tp_token_is_request(tp_token *token);
/* Returns why a message came back, in handler 0: 3, its tag was not accepted; 4, there is no such
 * handler; 5 and 6, it does not fit into the segment; 7, the endpoint was closed; 9, the destination
 * died; 10, a reply was not taken. */
int tp_token_status(tp_token *token);
/* Replies to a request with up to 16 arguments. */
int tp_token_reply(tp_token *token, uint8_t handler, const uint32_t *args, size_t count);
/* Replies to a request with arguments, and bytes for the handler. */
int tp_token_reply_medium(tp_token *token, uint8_t handler, const uint32_t *args, size_t count, const void *payload, size_t length);

/* @page tp_structures - stacks, queues and maps without locks
 *
 * They lie in a world, by name, and hold numbers of 64 bits. No process waits for a dead or stopped
 * one; an operation of a dead one has happened or not. What the dead had in their hands is missing
 * until a survivor calls the function to recover, or another takes the place of the dead.
 *
 * A small one has room for 255 numbers and 8 handles (32 KiB), a large one for 16,383 and 64
 * (1.4 MiB: see the object_bytes of tp_world_create(); `towpath run --objects 16M`). A handle is for
 * one thread at a time.
 */

/* Sizes of structures. */
enum {
    TP_SMALL = 0, /* 255 numbers, 8 handles */
    TP_LARGE = 1 /* 16,383 numbers, 64 handles */
};

/* A handle of a first-in, first-out queue. */
typedef struct tp_fifo tp_fifo;
/* A handle of a stack. */
typedef struct tp_stack tp_stack;
/* A handle of a map from numbers to numbers. */
typedef struct tp_map tp_map;

/* Opens a queue by name. */
int tp_world_fifo(tp_world *world, const char *name, int size, tp_fifo **out);
/* Ends the handle; NULL is none. */
void tp_fifo_close(tp_fifo *fifo);
/* Puts a number at the end; TP_EFULL if there is no room. */
int tp_fifo_push(tp_fifo *fifo, uint64_t value);
/* Takes the first number. Returns 1, 0 if there is none, or an error. */
int tp_fifo_pop(tp_fifo *fifo, uint64_t *value);
/* Frees what the dead had in their hands. Returns 1 if something is left for another call, or 0. */
int tp_fifo_recover(tp_fifo *fifo);
/* Opens a stack by name. */
int tp_world_stack(tp_world *world, const char *name, int size, tp_stack **out);
/* Ends the handle; NULL is none. */
void tp_stack_close(tp_stack *stack);
/* Puts a number on top; TP_EFULL if there is no room. */
int tp_stack_push(tp_stack *stack, uint64_t value);
/* Takes the number on top. Returns 1, 0 if there is none, or an error. */
int tp_stack_pop(tp_stack *stack, uint64_t *value);
/* Frees what the dead had in their hands. Returns 1 if something is left for another call, or 0. */
int tp_stack_recover(tp_stack *stack);
/* Opens a map by name. */
int tp_world_map(tp_world *world, const char *name, int size, tp_map **out);
/* Ends the handle; NULL is none. */
void tp_map_close(tp_map *map);
/* Sets the value of a key. Returns 1 and the old one (NULL: not asked for) if there was one, or 0. */
int tp_map_insert(tp_map *map, uint64_t key, uint64_t value, uint64_t *old);
/* Looks a key up. Returns 1 and its value (NULL: not asked for), or 0. */
int tp_map_get(tp_map *map, uint64_t key, uint64_t *value);
/* Removes a key. Returns 1 and its value (NULL: not asked for), or 0. */
int tp_map_remove(tp_map *map, uint64_t key, uint64_t *value);
/* Frees what the dead had in their hands. Returns 1 if something is left for another call, or 0. */
int tp_map_recover(tp_map *map);

#ifdef __cplusplus
}
#endif

#if defined(__SANITIZE_THREAD__)
#include "towpath-tsan.h"
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#include "towpath-tsan.h"
#endif
#endif

#endif
