// Towpath for C++20: towpath.h with handles that close themselves, guards that release, and exceptions.
//
// Errors are exceptions of type towpath::error, whose code() is one of the numbers TP_E…, and whose what() has names and
// numbers where a handle is opened; a time that is over is a return value. All classes can be moved and not copied.
// docs/c.md tells how to begin.
#ifndef TOWPATH_HPP
#define TOWPATH_HPP

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "towpath.h"

namespace towpath {

// Error of a call.
class error : public std::runtime_error {
public:
    explicit error(int code) : error(code, tp_strerror(code)) {}
    error(int code, const char *sentence) : std::runtime_error(sentence), code_(code) {}
    // One of the numbers TP_E….
    int code() const noexcept { return code_; }

private:
    int code_;
};

// A time after which a wait is given up.
using duration = std::chrono::nanoseconds;

// The mapping in which an object is to lie: bytes that the program has mapped.
struct mapping {
    void *at;
    std::size_t room;
};

namespace detail {

inline void check(int result) {
    if (result < 0) throw error(result);
}

// The number, if it is no error.
inline int checked(int result) {
    check(result);
    return result;
}

// True: 1. False: 0.
inline bool has(int result) { return checked(result) == 1; }

// True: done. False: the time was over.
inline bool in_time(int result) {
    if (result == TP_ETIMEDOUT) return false;
    check(result);
    return true;
}

inline std::uint64_t ns(duration time) {
    return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

using instant = std::chrono::steady_clock::time_point;

// The instant after a time, or the last one.
inline instant after(duration time) {
    const auto now = std::chrono::steady_clock::now();
    return time < instant::max() - now ? now + time : instant::max();
}

// The time until an instant; TP_FOREVER until the last one.
inline std::uint64_t until(instant end) {
    return end == instant::max() ? TP_FOREVER : ns(end - std::chrono::steady_clock::now());
}

// Owner of a handle.
template <typename T, void (*Close)(T *)>
class handle {
public:
    handle() = default;
    handle(handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    handle &operator=(handle &&other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() {
        if (raw_) Close(raw_);
    }
    // The handle for the functions of towpath.h.
    T *raw() const noexcept { return raw_; }

protected:
    template <typename Open>
    explicit handle(Open open) {
        if (int result = open(&raw_); result < 0) throw error(result, tp_last_error());
    }
    T *release() noexcept { return std::exchange(raw_, nullptr); }

private:
    T *raw_ = nullptr;
};

} // namespace detail

class mutex;
class world;

// A mutex is held while this lives.
class [[nodiscard]] mutex_guard {
public:
    mutex_guard(mutex_guard &&other) noexcept
        : mutex_(std::exchange(other.mutex_, nullptr)), owner_died_(other.owner_died_) {}
    mutex_guard &operator=(mutex_guard &&) = delete;
    ~mutex_guard() {
        if (mutex_) tp_mutex_unlock(mutex_);
    }
    // True if the last owner died: the data may be half changed. Without consistent() the next owner is told again.
    bool owner_died() const noexcept { return owner_died_; }
    // Declares the data repaired.
    void consistent() {
        detail::check(tp_mutex_consistent(mutex_));
        owner_died_ = false;
    }
    // The 64 bits under the mutex.
    std::uint64_t &value() const { return *tp_mutex_value(mutex_); }

private:
    friend class mutex;
    friend class condition;
    mutex_guard(tp_mutex *mutex, bool owner_died) : mutex_(mutex), owner_died_(owner_died) {}
    tp_mutex *mutex_;
    bool owner_died_;
};

// Robust mutex. Also what std::unique_lock and std::scoped_lock take: then the death of an owner is an exception of
// code TP_EOWNERDEAD, without the mutex, and the next owner is told again.
class mutex : public detail::handle<tp_mutex, tp_mutex_close> {
public:
    static std::size_t size(std::uint32_t users, std::uint32_t conditions = 0) {
        return tp_mutex_size(users, conditions);
    }
    static mutex init(mapping in, std::uint32_t users) {
        return mutex([=](tp_mutex **out) { return tp_mutex_init(in.at, in.room, users, out); });
    }
    static mutex open(mapping in) {
        return mutex([=](tp_mutex **out) { return tp_mutex_open(in.at, in.room, out); });
    }
    static mutex open_or_init(mapping in, std::uint32_t users) {
        return mutex([=](tp_mutex **out) { return tp_mutex_open_or_init(in.at, in.room, users, out); });
    }

    // Acquires; the guard says whether the last owner died.
    mutex_guard acquire() { return *kept(tp_mutex_lock(raw())); }
    // Acquires if the mutex is free.
    std::optional<mutex_guard> try_acquire() { return kept(tp_mutex_trylock(raw())); }
    // Acquires; gives up after this time.
    std::optional<mutex_guard> acquire_for(duration time) { return kept(tp_mutex_timedlock(raw(), detail::ns(time))); }

    void lock() { whole(tp_mutex_lock(raw())); }
    bool try_lock() { return whole(tp_mutex_trylock(raw())); }
    template <typename Rep, typename Period>
    bool try_lock_for(std::chrono::duration<Rep, Period> time) {
        return whole(tp_mutex_timedlock(raw(), detail::ns(std::chrono::duration_cast<duration>(time))));
    }
    void unlock() { detail::check(tp_mutex_unlock(raw())); }

private:
    friend class world;
    using handle::handle;
    std::optional<mutex_guard> kept(int result) {
        if (result == TP_ETIMEDOUT) return std::nullopt;
        if (result != TP_EOWNERDEAD) detail::check(result);
        return mutex_guard(raw(), result == TP_EOWNERDEAD);
    }
    bool whole(int result) {
        if (result == TP_EOWNERDEAD) tp_mutex_unlock(raw());
        return detail::in_time(result);
    }
};

// Condition variable beside a mutex.
class condition : public detail::handle<tp_cond, tp_cond_close> {
public:
    // Opens the condition of that name beside the mutex; makes it if there is none.
    static condition open(mutex &beside, const char *name) {
        return condition([&](tp_cond **out) { return tp_cond_open(beside.raw(), name, out); });
    }
    // Waits until notified, or for no reason. The guard says afterwards whether an owner died meanwhile.
    void wait(mutex_guard &guard) { wait_ns(guard, TP_FOREVER); }
    // Waits until the predicate holds.
    template <typename Predicate>
    void wait(mutex_guard &guard, Predicate holds) {
        while (!holds()) wait(guard);
    }
    // Waits; false: the time was over.
    bool wait_for(mutex_guard &guard, duration time) { return wait_ns(guard, detail::ns(time)); }
    // Waits until the predicate holds; false: the time was over, and it does not.
    template <typename Predicate>
    bool wait_for(mutex_guard &guard, duration time, Predicate holds) {
        const auto end = detail::after(time);
        while (!holds()) {
            if (!wait_ns(guard, detail::until(end))) return holds();
        }
        return true;
    }
    void notify_one() { detail::check(tp_cond_signal(raw())); }
    void notify_all() { detail::check(tp_cond_broadcast(raw())); }

private:
    friend class world;
    using handle::handle;
    bool wait_ns(mutex_guard &guard, std::uint64_t ns) {
        int result = tp_cond_wait(raw(), guard.mutex_, ns);
        if (result == 0 || result == TP_ETIMEDOUT) return result == 0;
        if (result == TP_EOWNERDEAD) {
            guard.owner_died_ = true;
            return true;
        }
        // These are found before the mutex is released.
        if (result != TP_EAPART && result != TP_EINVALID) guard.mutex_ = nullptr;
        throw error(result);
    }
};

// A readers-writer lock is held for reading while this lives.
class [[nodiscard]] read_guard {
public:
    read_guard(read_guard &&other) noexcept : lock_(std::exchange(other.lock_, nullptr)), reading_(other.reading_) {}
    read_guard &operator=(read_guard &&) = delete;
    ~read_guard() {
        if (lock_) tp_rwlock_read_unlock(lock_, &reading_);
    }
    const std::uint64_t &value() const { return *tp_rwlock_value(lock_); }

private:
    friend class rw_lock;
    read_guard(tp_rwlock *lock, tp_reading reading) : lock_(lock), reading_(reading) {}
    tp_rwlock *lock_;
    tp_reading reading_;
};

// A readers-writer lock is held for writing while this lives.
class [[nodiscard]] write_guard {
public:
    write_guard(write_guard &&other) noexcept
        : lock_(std::exchange(other.lock_, nullptr)), owner_died_(other.owner_died_) {}
    write_guard &operator=(write_guard &&) = delete;
    ~write_guard() {
        if (lock_) tp_rwlock_write_unlock(lock_);
    }
    bool owner_died() const noexcept { return owner_died_; }
    void consistent() {
        detail::check(tp_rwlock_consistent(lock_));
        owner_died_ = false;
    }
    std::uint64_t &value() const { return *tp_rwlock_value(lock_); }

private:
    friend class rw_lock;
    write_guard(tp_rwlock *lock, bool owner_died) : lock_(lock), owner_died_(owner_died) {}
    tp_rwlock *lock_;
    bool owner_died_;
};

// Readers-writer lock.
class rw_lock : public detail::handle<tp_rwlock, tp_rwlock_close> {
public:
    static std::size_t size(std::uint32_t users) { return tp_rwlock_size(users); }
    static rw_lock init(mapping in, std::uint32_t users) {
        return rw_lock([=](tp_rwlock **out) { return tp_rwlock_init(in.at, in.room, users, out); });
    }
    static rw_lock open(mapping in) {
        return rw_lock([=](tp_rwlock **out) { return tp_rwlock_open(in.at, in.room, out); });
    }
    static rw_lock open_or_init(mapping in, std::uint32_t users) {
        return rw_lock([=](tp_rwlock **out) { return tp_rwlock_open_or_init(in.at, in.room, users, out); });
    }
    // Acquires for reading. If a writer died, `repair` gets a write_guard, with which it makes the data consistent.
    template <typename Repair>
    read_guard read(Repair repair) {
        return *reader(detail::instant::max(), repair);
    }
    // Acquires for reading; the death of a writer is an exception, and the next that acquires is told again.
    read_guard read() {
        return read([](write_guard &) {});
    }
    // Acquires for reading; gives up after this time.
    template <typename Repair>
    std::optional<read_guard> read_for(duration time, Repair repair) {
        return reader(detail::after(time), repair);
    }
    std::optional<read_guard> read_for(duration time) {
        return read_for(time, [](write_guard &) {});
    }
    write_guard write() { return *writer(tp_rwlock_write(raw(), TP_FOREVER)); }
    std::optional<write_guard> write_for(duration time) { return writer(tp_rwlock_write(raw(), detail::ns(time))); }

private:
    friend class world;
    using handle::handle;
    template <typename Repair>
    std::optional<read_guard> reader(detail::instant end, Repair repair) {
        for (;;) {
            tp_reading reading;
            int result = tp_rwlock_read(raw(), detail::until(end), &reading);
            if (result == 0) return read_guard(raw(), reading);
            if (result == TP_ETIMEDOUT) return std::nullopt;
            if (result != TP_EOWNERDEAD) throw error(result);
            write_guard writer(raw(), true);
            repair(writer);
            if (writer.owner_died()) throw error(TP_EOWNERDEAD);
        }
    }
    std::optional<write_guard> writer(int result) {
        if (result == TP_ETIMEDOUT) return std::nullopt;
        if (result != TP_EOWNERDEAD) detail::check(result);
        return write_guard(raw(), result == TP_EOWNERDEAD);
    }
};

// A permit of a semaphore, given back when this ends.
class [[nodiscard]] permit {
public:
    permit(permit &&other) noexcept : semaphore_(std::exchange(other.semaphore_, nullptr)) {}
    permit &operator=(permit &&) = delete;
    ~permit() {
        if (semaphore_) tp_sem_release(semaphore_);
    }

private:
    friend class semaphore;
    explicit permit(tp_sem *semaphore) : semaphore_(semaphore) {}
    tp_sem *semaphore_;
};

// Semaphore whose permits come back from the dead.
class semaphore : public detail::handle<tp_sem, tp_sem_close> {
public:
    static std::size_t size(std::uint32_t users) { return tp_sem_size(users); }
    static semaphore init(mapping in, std::uint32_t users, std::uint64_t permits) {
        return semaphore([=](tp_sem **out) { return tp_sem_init(in.at, in.room, users, permits, out); });
    }
    static semaphore open(mapping in) {
        return semaphore([=](tp_sem **out) { return tp_sem_open(in.at, in.room, out); });
    }
    static semaphore open_or_init(mapping in, std::uint32_t users, std::uint64_t permits) {
        return semaphore([=](tp_sem **out) { return tp_sem_open_or_init(in.at, in.room, users, permits, out); });
    }
    permit acquire() {
        detail::check(tp_sem_wait(raw(), TP_FOREVER));
        return permit(raw());
    }
    std::optional<permit> acquire_for(duration time) {
        if (!detail::in_time(tp_sem_wait(raw(), detail::ns(time)))) return std::nullopt;
        return permit(raw());
    }
    void add(std::uint64_t permits) { detail::check(tp_sem_add(raw(), permits)); }
    std::uint64_t available() const { return tp_sem_available(raw()); }

private:
    friend class world;
    using handle::handle;
};

// Barrier. If a participant dies, wait() throws TP_EPEERDIED to all that wait, once.
class barrier : public detail::handle<tp_barrier, tp_barrier_close> {
public:
    static std::size_t size(std::uint32_t users) { return tp_barrier_size(users); }
    static barrier init(mapping in, std::uint32_t users, std::size_t participants) {
        return barrier([=](tp_barrier **out) { return tp_barrier_init(in.at, in.room, users, participants, out); });
    }
    static barrier open(mapping in) {
        return barrier([=](tp_barrier **out) { return tp_barrier_open(in.at, in.room, out); });
    }
    static barrier open_or_init(mapping in, std::uint32_t users, std::size_t participants) {
        return barrier(
            [=](tp_barrier **out) { return tp_barrier_open_or_init(in.at, in.room, users, participants, out); });
    }
    void join() { detail::check(tp_barrier_join(raw())); }
    void wait() { detail::check(tp_barrier_wait(raw(), TP_FOREVER)); }
    bool wait_for(duration time) { return detail::in_time(tp_barrier_wait(raw(), detail::ns(time))); }
    void leave() { detail::check(tp_barrier_leave(raw())); }

private:
    friend class world;
    using handle::handle;
};

// Flag that waiters wait for.
class event : public detail::handle<tp_event, tp_event_close> {
public:
    static std::size_t size(std::uint32_t users) { return tp_event_size(users); }
    static event init(mapping in, std::uint32_t users) {
        return event([=](tp_event **out) { return tp_event_init(in.at, in.room, users, out); });
    }
    static event open(mapping in) {
        return event([=](tp_event **out) { return tp_event_open(in.at, in.room, out); });
    }
    static event open_or_init(mapping in, std::uint32_t users) {
        return event([=](tp_event **out) { return tp_event_open_or_init(in.at, in.room, users, out); });
    }
    void set() { detail::check(tp_event_set(raw())); }
    bool reset() { return tp_event_reset(raw()) == 1; }
    bool is_set() const { return tp_event_is_set(raw()) == 1; }
    void wait() { detail::check(tp_event_wait(raw(), TP_FOREVER)); }
    bool wait_for(duration time) { return detail::in_time(tp_event_wait(raw(), detail::ns(time))); }

private:
    friend class world;
    using handle::handle;
};

// Kind of a queue: how many send, and receive. Where there may be one only, one thread at a time uses it.
enum class kind : int { mpmc = TP_MPMC, mpsc = TP_MPSC, spsc = TP_SPSC };

template <typename T, kind Kind = kind::mpmc>
class queue;
template <typename T>
class receiver;

// Sender of a queue.
template <typename T>
class sender : public detail::handle<tp_sender, tp_sender_close> {
public:
    void send(const T &message) { detail::check(tp_sender_send(raw(), &message, TP_FOREVER)); }
    bool send_for(const T &message, duration time) {
        return detail::in_time(tp_sender_send(raw(), &message, detail::ns(time)));
    }
    void shut() { detail::check(tp_sender_shut(raw())); }

private:
    template <typename, kind>
    friend class queue;
    using handle::handle;
};

// Message under a lease, where it lies. Destroyed, it is given back: it comes in again, also if the process dies.
// Its receiver must outlive it.
template <typename T>
class leased {
public:
    leased(leased &&other) noexcept
        : receiver_(std::exchange(other.receiver_, nullptr)), at_(other.at_), lease_(other.lease_) {}
    leased &operator=(leased &&) = delete;
    ~leased() {
        if (receiver_) tp_receiver_end(receiver_, &lease_, 0);
    }
    // The bytes need not lie as aligned as a T wants it: hence a copy.
    T get() const {
        T message;
        std::memcpy(&message, at_, sizeof(T));
        return message;
    }
    const void *data() const { return at_; }
    // The message is done with.
    void done() { detail::check(tp_receiver_end(std::exchange(receiver_, nullptr), &lease_, 1)); }
    // The message is done with, and another one sent: both, or neither.
    template <typename U>
    void done_into(sender<U> &into, const U &message) {
        detail::check(tp_receiver_end_into(receiver_, &lease_, into.raw(), &message, TP_FOREVER));
        receiver_ = nullptr;
    }

private:
    friend class receiver<T>;
    leased(tp_receiver *receiver, const void *at, tp_lease lease) : receiver_(receiver), at_(at), lease_(lease) {}
    tp_receiver *receiver_;
    const void *at_;
    tp_lease lease_;
};

// Receiver of a queue.
template <typename T>
class receiver : public detail::handle<tp_receiver, tp_receiver_close> {
public:
    T receive() {
        T message;
        detail::check(tp_receiver_receive(raw(), &message, TP_FOREVER));
        return message;
    }
    std::optional<T> receive_for(duration time) {
        T message;
        if (!detail::in_time(tp_receiver_receive(raw(), &message, detail::ns(time)))) return std::nullopt;
        return message;
    }
    // The next message; none after the last, when the queue is closed or all senders have gone.
    std::optional<T> next() {
        T message;
        int result = tp_receiver_receive(raw(), &message, TP_FOREVER);
        if (result == TP_ECLOSED || result == TP_EDISCONNECTED) return std::nullopt;
        detail::check(result);
        return message;
    }
    // The next message under a lease; not of a queue of one sender and one receiver.
    leased<T> lease() { return *lease_ns(TP_FOREVER); }
    std::optional<leased<T>> lease_for(duration time) { return lease_ns(detail::ns(time)); }
    std::size_t waiting() const { return tp_receiver_waiting(raw()); }
    void shut() { detail::check(tp_receiver_shut(raw())); }

private:
    template <typename, kind>
    friend class queue;
    using handle::handle;
    std::optional<leased<T>> lease_ns(std::uint64_t ns) {
        const void *at = nullptr;
        tp_lease lease{};
        if (!detail::in_time(tp_receiver_lease(raw(), ns, &at, &lease))) return std::nullopt;
        return leased<T>(raw(), at, lease);
    }
};

// Bounded queue of values, which are copied as bytes.
template <typename T, kind Kind>
class queue : public detail::handle<tp_queue, tp_queue_close> {
    static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);
    static constexpr std::size_t bytes = sizeof(T);
    static_assert(bytes <= 65536, "a message has at most 65,536 bytes");
    static constexpr int number = static_cast<int>(Kind);

public:
    static std::size_t size(std::uint32_t users, std::size_t capacity) {
        return tp_queue_size(users, number, bytes, capacity);
    }
    static queue init(mapping in, std::uint32_t users, std::size_t capacity) {
        return queue([=](tp_queue **out) { return tp_queue_init(in.at, in.room, users, number, bytes, capacity, out); });
    }
    static queue open(mapping in, std::size_t capacity) {
        return queue([=](tp_queue **out) { return tp_queue_open(in.at, in.room, number, bytes, capacity, out); });
    }
    static queue open_or_init(mapping in, std::uint32_t users, std::size_t capacity) {
        return queue(
            [=](tp_queue **out) { return tp_queue_open_or_init(in.at, in.room, users, number, bytes, capacity, out); });
    }
    towpath::sender<T> sender() {
        return towpath::sender<T>([this](tp_sender **out) { return tp_sender_open(this->raw(), out); });
    }
    towpath::receiver<T> receiver() {
        return towpath::receiver<T>([this](tp_receiver **out) { return tp_receiver_open(this->raw(), out); });
    }

private:
    friend class world;
    using handle::handle;
};

// Message of any length, where it lies. Destroyed, it is done with; it comes in again if the process dies before.
class message : public detail::handle<tp_message, tp_message_done> {
public:
    // A message that was moved from has no bytes.
    message(message &&other) noexcept
        : handle(static_cast<handle &&>(other)), bytes_(std::exchange(other.bytes_, {})) {}
    message &operator=(message &&other) noexcept {
        handle::operator=(std::move(other));
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    std::span<const std::byte> bytes() const { return bytes_; }
    // Gives it back: it comes in again, behind those that wait.
    void give_back() && {
        message gone(std::move(*this));
        tp_message_give_back(gone.release());
    }

private:
    friend class fetcher;
    using handle::handle;
    std::span<const std::byte> bytes_;
};

// Sender of messages of any length.
class poster : public detail::handle<tp_poster, tp_poster_close> {
public:
    void send(std::span<const std::byte> message) {
        detail::check(tp_poster_send(raw(), message.data(), message.size(), TP_FOREVER));
    }
    bool send_for(std::span<const std::byte> message, duration time) {
        return detail::in_time(tp_poster_send(raw(), message.data(), message.size(), detail::ns(time)));
    }
    void shut() { detail::check(tp_poster_shut(raw())); }

private:
    friend class messages;
    using handle::handle;
};

// Receiver of messages of any length.
class fetcher : public detail::handle<tp_fetcher, tp_fetcher_close> {
public:
    message receive() { return *receive_ns(TP_FOREVER); }
    std::optional<message> receive_for(duration time) { return receive_ns(detail::ns(time)); }
    std::size_t waiting() const { return tp_fetcher_waiting(raw()); }

private:
    friend class messages;
    using handle::handle;
    std::optional<message> receive_ns(std::uint64_t ns) {
        const void *at = nullptr;
        std::size_t bytes = 0;
        tp_message *held = nullptr;
        if (!detail::in_time(tp_fetcher_receive(raw(), ns, &at, &bytes, &held))) return std::nullopt;
        message found([&](tp_message **out) {
            *out = held;
            return 0;
        });
        found.bytes_ = std::span(static_cast<const std::byte *>(at), bytes);
        return found;
    }
};

// Queue of messages of any length.
class messages : public detail::handle<tp_messages, tp_messages_close> {
public:
    static std::size_t size(std::uint32_t users, std::size_t capacity, std::size_t buffers, std::size_t buffer_bytes) {
        return tp_messages_size(users, capacity, buffers, buffer_bytes);
    }
    static messages init(mapping in, std::uint32_t users, std::size_t capacity, std::size_t buffers,
                         std::size_t buffer_bytes) {
        return messages([=](tp_messages **out) {
            return tp_messages_init(in.at, in.room, users, capacity, buffers, buffer_bytes, out);
        });
    }
    static messages open(mapping in, std::size_t capacity, std::size_t buffers, std::size_t buffer_bytes) {
        return messages(
            [=](tp_messages **out) { return tp_messages_open(in.at, in.room, capacity, buffers, buffer_bytes, out); });
    }
    static messages open_or_init(mapping in, std::uint32_t users, std::size_t capacity, std::size_t buffers,
                                 std::size_t buffer_bytes) {
        return messages([=](tp_messages **out) {
            return tp_messages_open_or_init(in.at, in.room, users, capacity, buffers, buffer_bytes, out);
        });
    }
    towpath::poster poster() {
        return towpath::poster([this](tp_poster **out) { return tp_poster_open(this->raw(), out); });
    }
    towpath::fetcher fetcher() {
        return towpath::fetcher([this](tp_fetcher **out) { return tp_fetcher_open(this->raw(), out); });
    }
    std::size_t longest() const { return tp_messages_longest(raw()); }

private:
    friend class world;
    using handle::handle;
};

// Writer of a broadcast ring.
class writer : public detail::handle<tp_writer, tp_writer_close> {
public:
    void send(std::span<const std::byte> message) {
        detail::check(tp_writer_send(raw(), message.data(), message.size(), TP_FOREVER));
    }
    bool send_for(std::span<const std::byte> message, duration time) {
        return detail::in_time(tp_writer_send(raw(), message.data(), message.size(), detail::ns(time)));
    }
    std::size_t readers() const { return tp_writer_readers(raw()); }
    bool lost_reader() { return tp_writer_lost_reader(raw()) == 1; }
    void shut() { detail::check(tp_writer_shut(raw())); }

private:
    friend class broadcast;
    using handle::handle;
};

// Reader of a broadcast ring.
class reader : public detail::handle<tp_reader, tp_reader_close> {
public:
    // The next message, valid until the next call. `missed` gets the number of those missed before it.
    std::span<const std::byte> receive(std::uint64_t *missed = nullptr) {
        return *receive_ns(TP_FOREVER, missed);
    }
    std::optional<std::span<const std::byte>> receive_for(duration time, std::uint64_t *missed = nullptr) {
        return receive_ns(detail::ns(time), missed);
    }

private:
    friend class broadcast;
    using handle::handle;
    std::optional<std::span<const std::byte>> receive_ns(std::uint64_t ns, std::uint64_t *missed) {
        const void *at = nullptr;
        std::size_t bytes = 0;
        if (!detail::in_time(tp_reader_receive(raw(), ns, &at, &bytes, missed))) return std::nullopt;
        return std::span(static_cast<const std::byte *>(at), bytes);
    }
};

// Broadcast ring from one writer to many readers.
class broadcast : public detail::handle<tp_broadcast, tp_broadcast_close> {
public:
    static std::size_t size(std::uint32_t users, std::size_t bytes) { return tp_broadcast_size(users, bytes); }
    static broadcast init(mapping in, std::uint32_t users, std::size_t bytes, bool lossy = false) {
        return broadcast(
            [=](tp_broadcast **out) { return tp_broadcast_init(in.at, in.room, users, bytes, lossy, out); });
    }
    static broadcast open(mapping in, std::size_t bytes, bool lossy = false) {
        return broadcast([=](tp_broadcast **out) { return tp_broadcast_open(in.at, in.room, bytes, lossy, out); });
    }
    static broadcast open_or_init(mapping in, std::uint32_t users, std::size_t bytes, bool lossy = false) {
        return broadcast(
            [=](tp_broadcast **out) { return tp_broadcast_open_or_init(in.at, in.room, users, bytes, lossy, out); });
    }
    towpath::writer writer() {
        return towpath::writer([this](tp_writer **out) { return tp_writer_open(this->raw(), out); });
    }
    towpath::reader reader() {
        return towpath::reader([this](tp_reader **out) { return tp_reader_open(this->raw(), out); });
    }

private:
    friend class world;
    using handle::handle;
};

// Arguments of a message: up to 16.
using arguments = std::span<const std::uint32_t>;

// Message of endpoints, as long as its handler runs.
class token {
public:
    towpath::arguments arguments() const {
        std::size_t count = 0;
        const std::uint32_t *at = tp_token_args(raw_, &count);
        return {at, count};
    }
    // The bytes of a medium message.
    std::span<const std::byte> bytes() const {
        std::size_t length = 0;
        const void *at = tp_token_bytes(raw_, &length);
        return {static_cast<const std::byte *>(at), length};
    }
    // Where the bytes of a long message lie in the segment.
    struct place {
        std::uint64_t offset, length;
    };
    std::optional<place> stored() const {
        place found{};
        if (tp_token_stored(raw_, &found.offset, &found.length) != 1) return std::nullopt;
        return found;
    }
    bool is_request() const { return tp_token_is_request(raw_) == 1; }
    // Why it came back, in handler 0: see tp_token_status().
    int status() const { return tp_token_status(raw_); }
    void reply(std::uint8_t handler, towpath::arguments arguments) {
        detail::check(tp_token_reply(raw_, handler, arguments.data(), arguments.size()));
    }
    void reply(std::uint8_t handler, towpath::arguments arguments, std::span<const std::byte> payload) {
        detail::check(tp_token_reply_medium(raw_, handler, arguments.data(), arguments.size(), payload.data(),
                                            payload.size()));
    }

private:
    friend class endpoint;
    explicit token(tp_token *raw) : raw_(raw) {}
    tp_token *raw_;
};

// Endpoint of this process, for the thread that opens it. What a handler may do: see towpath.h. An exception that
// leaves a handler ends the program.
class endpoint : public detail::handle<tp_endpoint, tp_endpoint_close> {
public:
    using handler = std::function<void(token &)>;

    endpoint(endpoint &&) noexcept = default;
    endpoint &operator=(endpoint &&other) noexcept {
        handle::operator=(std::move(other));
        std::swap(handlers_, other.handlers_);
        return *this;
    }
    // From now on messages go to ranks by number; waits for an endpoint of each rank that lives.
    void map_world() { detail::check(tp_endpoint_map_world(raw())); }
    // Sets a handler; an empty one clears it. Handler 0 gets messages that came back.
    void on(std::uint8_t index, handler act) {
        handler &place = (*handlers_)[index];
        place = std::move(act);
        detail::check(tp_endpoint_set_handler(raw(), index, place ? run : nullptr, &place));
    }
    void request(std::uint32_t to, std::uint8_t handler, towpath::arguments arguments) {
        detail::check(tp_endpoint_request(raw(), to, handler, arguments.data(), arguments.size()));
    }
    void request(std::uint32_t to, std::uint8_t handler, towpath::arguments arguments,
                 std::span<const std::byte> payload) {
        detail::check(tp_endpoint_request_medium(raw(), to, handler, arguments.data(), arguments.size(),
                                                 payload.data(), payload.size()));
    }
    // Stores bytes in the destination's segment, then runs the handler there.
    void store(std::uint32_t to, std::uint8_t handler, towpath::arguments arguments,
               std::span<const std::byte> payload, std::uint64_t offset) {
        detail::check(tp_endpoint_request_long(raw(), to, handler, arguments.data(), arguments.size(),
                                               payload.data(), payload.size(), offset));
    }
    // Handles the messages that are there. Returns their number.
    int poll() {
        return detail::checked(tp_endpoint_poll(raw()));
    }
    // Waits until a message is there to be handled.
    void wait() { detail::check(tp_endpoint_wait(raw(), TP_FOREVER)); }
    bool wait_for(duration time) { return detail::in_time(tp_endpoint_wait(raw(), detail::ns(time))); }
    // Waits until all ranks are here, and handles messages meanwhile.
    void barrier() { detail::check(tp_endpoint_barrier(raw())); }
    std::uint64_t segment_size() const { return tp_endpoint_segment_size(raw()); }
    void read_segment(std::uint64_t offset, std::span<std::byte> to) const {
        detail::check(tp_endpoint_segment_read(raw(), offset, to.data(), to.size()));
    }

private:
    friend class world;
    using handle::handle;
    static void run(tp_token *raw, void *context) noexcept {
        token message(raw);
        (*static_cast<handler *>(context))(message);
    }
    // They stay where they are when the endpoint moves.
    std::unique_ptr<std::array<handler, 256>> handlers_ = std::make_unique<std::array<handler, 256>>();
};

// Sizes of structures without locks.
enum class size : int { small = TP_SMALL, large = TP_LARGE };

namespace detail {

// Handle of a queue or a stack of numbers.
template <typename T, void (*Close)(T *), int (*Push)(T *, std::uint64_t), int (*Pop)(T *, std::uint64_t *),
          int (*Recover)(T *)>
class numbers : public handle<T, Close> {
public:
    // False: there is no room.
    bool push(std::uint64_t value) {
        int result = Push(this->raw(), value);
        if (result == TP_EFULL) return false;
        check(result);
        return true;
    }
    // The next number, if there is one.
    std::optional<std::uint64_t> pop() {
        std::uint64_t value = 0;
        return has(Pop(this->raw(), &value)) ? std::optional(value) : std::nullopt;
    }
    // Frees what the dead had in their hands. True if something is left for another call.
    bool recover() { return has(Recover(this->raw())); }

private:
    friend class towpath::world;
    using handle<T, Close>::handle;
};

} // namespace detail

// First-in, first-out queue of numbers without locks, and stack.
using fifo = detail::numbers<tp_fifo, tp_fifo_close, tp_fifo_push, tp_fifo_pop, tp_fifo_recover>;
using stack = detail::numbers<tp_stack, tp_stack_close, tp_stack_push, tp_stack_pop, tp_stack_recover>;

// Map from numbers to numbers without locks.
class map : public detail::handle<tp_map, tp_map_close> {
public:
    // Sets the value of a key. Returns the old one, if there was one.
    std::optional<std::uint64_t> insert(std::uint64_t key, std::uint64_t value) {
        return found([&](std::uint64_t *old) { return tp_map_insert(raw(), key, value, old); });
    }
    std::optional<std::uint64_t> get(std::uint64_t key) {
        return found([&](std::uint64_t *value) { return tp_map_get(raw(), key, value); });
    }
    std::optional<std::uint64_t> remove(std::uint64_t key) {
        return found([&](std::uint64_t *value) { return tp_map_remove(raw(), key, value); });
    }
    // Frees what the dead had in their hands. True if something is left for another call.
    bool recover() { return detail::has(tp_map_recover(raw())); }

private:
    friend class world;
    using handle::handle;
    template <typename Call>
    std::optional<std::uint64_t> found(Call call) {
        std::uint64_t value = 0;
        return detail::has(call(&value)) ? std::optional(value) : std::nullopt;
    }
};

// Plain bytes in a world: tables and arrays, also those of Python and Rust programs.
class bytes : public detail::handle<tp_bytes, tp_bytes_close> {
public:
    // Valid as long as this lives.
    template <typename T = std::byte>
        requires std::is_trivially_copyable_v<T>
    std::span<T> as() const {
        return {static_cast<T *>(tp_bytes_at(raw())), size_ / sizeof(T)};
    }

private:
    friend class world;
    template <typename Open>
    bytes(std::size_t size, Open open) : handle(open), size_(size) {}
    std::size_t size_;
};

// World: processes that find each other and their objects by name.
class world : public detail::handle<tp_world, tp_world_close> {
public:
    static world join() { return world(tp_world_join); }
    static world create(const char *name, std::uint32_t processes, std::uint64_t object_bytes = 0) {
        return world([=](tp_world **out) { return tp_world_create(name, processes, object_bytes, out); });
    }
    // A world whose ranks have endpoints, with segments of so many bytes.
    static world create_with_endpoints(const char *name, std::uint32_t processes, std::uint64_t segment_bytes,
                                       std::uint64_t object_bytes = 0) {
        return world([=](tp_world **out) {
            return tp_world_create_with_endpoints(name, processes, segment_bytes, object_bytes, out);
        });
    }
    static world open(const char *name) {
        return world([=](tp_world **out) { return tp_world_open(name, out); });
    }
    // Enters in a forked child, by the parent's handle.
    void enter() { detail::check(tp_world_enter(raw())); }
    int rank() const {
        return detail::checked(tp_world_rank(raw()));
    }
    std::uint32_t size() const { return tp_world_size(raw()); }
    bool is_alive(std::uint32_t rank) const { return tp_world_is_alive(raw(), rank) == 1; }
    std::uint64_t deaths() const { return tp_world_deaths(raw()); }
    void wait() { detail::check(tp_world_barrier(raw())); }

    towpath::mutex mutex(const char *name, std::uint64_t value = 0) {
        return towpath::mutex([&](tp_mutex **out) { return tp_world_mutex(raw(), name, value, out); });
    }
    towpath::rw_lock rw_lock(const char *name, std::uint64_t value = 0) {
        return towpath::rw_lock([&](tp_rwlock **out) { return tp_world_rwlock(raw(), name, value, out); });
    }
    towpath::condition condition(const char *name) {
        return towpath::condition([&](tp_cond **out) { return tp_world_cond(raw(), name, out); });
    }
    towpath::semaphore semaphore(const char *name, std::uint64_t permits) {
        return towpath::semaphore([&](tp_sem **out) { return tp_world_sem(raw(), name, permits, out); });
    }
    towpath::barrier barrier(const char *name, std::size_t participants) {
        return towpath::barrier([&](tp_barrier **out) { return tp_world_barrier_of(raw(), name, participants, out); });
    }
    towpath::event event(const char *name) {
        return towpath::event([&](tp_event **out) { return tp_world_event(raw(), name, out); });
    }
    template <typename T, kind Kind = kind::mpmc>
    towpath::queue<T, Kind> queue(const char *name, std::size_t capacity) {
        return towpath::queue<T, Kind>([&](tp_queue **out) {
            return tp_world_queue(raw(), name, static_cast<int>(Kind), sizeof(T), capacity, out);
        });
    }
    towpath::messages messages(const char *name, std::size_t capacity, std::size_t buffers, std::size_t buffer_bytes) {
        return towpath::messages([&](tp_messages **out) {
            return tp_world_messages(raw(), name, capacity, buffers, buffer_bytes, out);
        });
    }
    towpath::broadcast broadcast(const char *name, std::size_t bytes, bool lossy = false) {
        return towpath::broadcast(
            [&](tp_broadcast **out) { return tp_world_broadcast(raw(), name, bytes, lossy, out); });
    }
    // So many bytes of that name; new ones are zeroed.
    towpath::bytes bytes(const char *name, std::size_t size) {
        return towpath::bytes(size, [&](tp_bytes **out) { return tp_world_bytes(raw(), name, size, out); });
    }
    towpath::endpoint endpoint() {
        return towpath::endpoint([this](tp_endpoint **out) { return tp_endpoint_open(raw(), out); });
    }
    towpath::fifo fifo(const char *name, towpath::size size = towpath::size::small) {
        return towpath::fifo(
            [&](tp_fifo **out) { return tp_world_fifo(raw(), name, static_cast<int>(size), out); });
    }
    towpath::stack stack(const char *name, towpath::size size = towpath::size::small) {
        return towpath::stack(
            [&](tp_stack **out) { return tp_world_stack(raw(), name, static_cast<int>(size), out); });
    }
    towpath::map map(const char *name, towpath::size size = towpath::size::small) {
        return towpath::map([&](tp_map **out) { return tp_world_map(raw(), name, static_cast<int>(size), out); });
    }

private:
    using handle::handle;
};

} // namespace towpath

#endif
