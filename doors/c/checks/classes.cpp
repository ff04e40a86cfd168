// The classes of towpath.hpp: guards release, errors are exceptions, deaths are told.
#include <iostream>
#include <mutex>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "towpath.hpp"

using namespace std::chrono_literals;

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition " does not hold\n";                \
            std::_Exit(1);                                                                                 \
        }                                                                                                  \
    } while (0)

template <typename Act>
int code_of(Act act) {
    try {
        act();
    } catch (const towpath::error &error) {
        CHECK(std::string(error.what()) == tp_strerror(error.code()));
        return error.code();
    }
    return 0;
}

static towpath::mapping zeroed(std::size_t room) {
    void *at = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return {at, room};
}

// Runs a child that does this and dies.
template <typename Act>
static void in_a_dead_child(Act act) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        act();
        kill(getpid(), SIGKILL);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

struct job {
    std::uint64_t number;
    double weight;
};

int main() {
    alarm(120);
    auto in = zeroed(towpath::mutex::size(4, 1));
    auto mutex = towpath::mutex::open_or_init(in, 4);
    auto changed = towpath::condition::open(mutex, "changed");
    {
        auto guard = mutex.acquire();
        guard.value() = 7;
        CHECK(!guard.owner_died());
        CHECK(!changed.wait_for(guard, 1ms));
        CHECK(code_of([&] { mutex.lock(); }) == TP_EDEADLOCK);
    }
    {
        std::scoped_lock lock(mutex);
    }
    CHECK(mutex.try_lock_for(1ms));
    mutex.unlock();
    CHECK(code_of([&] { mutex.unlock(); }) == TP_EPERM);
    in_a_dead_child([&] {
        auto own = towpath::mutex::open(in);
        own.lock();
    });
    CHECK(code_of([&] { std::scoped_lock lock(mutex); }) == TP_EOWNERDEAD);
    {
        auto guard = mutex.acquire();
        CHECK(guard.owner_died() && guard.value() == 7);
        guard.consistent();
        CHECK(!guard.owner_died());
    }
    CHECK(!mutex.acquire().owner_died());

    auto lock_in = zeroed(towpath::rw_lock::size(4));
    auto lock = towpath::rw_lock::init(lock_in, 4);
    CHECK(lock.read().value() == 0);
    lock.write().value() = 3;
    in_a_dead_child([&] {
        auto own = towpath::rw_lock::open(lock_in);
        auto writer = own.write();
        writer.value() = 4;
        kill(getpid(), SIGKILL);
    });
    CHECK(code_of([&] { auto reader = lock.read(); }) == TP_EOWNERDEAD);
    auto reader = lock.read([](towpath::write_guard &writer) {
        writer.value() = 5;
        writer.consistent();
    });
    CHECK(reader.value() == 5 && !lock.write_for(1ms));

    towpath::world world = towpath::world::create(nullptr, 2);
    auto permits = world.semaphore("permits", 1);
    {
        auto permit = permits.acquire();
        CHECK(!permits.acquire_for(1ms));
    }
    CHECK(permits.available() == 1);
    auto jobs = world.queue<job>("jobs", 4);
    {
        auto receiver = jobs.receiver();
        {
            auto sender = jobs.sender();
            sender.send({1, 0.5});
            CHECK(sender.send_for({2, 1.5}, 1s));
            CHECK(receiver.waiting() == 2 && receiver.receive().weight == 0.5);
        }
        CHECK(receiver.next()->number == 2 && !receiver.next());
    }
    CHECK(code_of([&] { world.queue<std::uint64_t>("jobs", 4); }) == TP_ETYPE);
    {
        auto odd = world.queue<std::array<char, 3>, towpath::kind::mpsc>("odd", 4);
        auto numbers = world.queue<job>("numbers", 4);
        auto receiver = odd.receiver();
        CHECK(code_of([&] { odd.receiver(); }) == TP_ETAKEN);
        auto sender = odd.sender();
        auto next = numbers.sender();
        sender.send({'a', 'b', 'c'});
        CHECK(receiver.lease().get()[2] == 'c');
        CHECK(receiver.waiting() == 1);
        receiver.lease().done_into(next, {7, 0.25});
        CHECK(!receiver.lease_for(1ms) && numbers.receiver().receive().number == 7);
        sender.send({'d', 'e', 'f'});
        receiver.lease().done();
        CHECK(receiver.waiting() == 0);
        auto letters = world.messages("letters", 3, 2, 1000);
        auto poster = letters.poster();
        auto fetcher = letters.fetcher();
        std::string longer(900, 'x');
        poster.send(std::as_bytes(std::span(longer)));
        fetcher.receive().give_back();
        auto held = fetcher.receive();
        CHECK(held.bytes().size() == 900 && held.bytes()[899] == std::byte{'x'} && !fetcher.receive_for(1ms));
    }
    auto ring = world.broadcast("ring", 4096);
    auto writer = ring.writer();
    auto listener = ring.reader();
    std::string text = "to all";
    writer.send(std::as_bytes(std::span(text)));
    auto message = listener.receive();
    CHECK(message.size() == text.size() && std::memcmp(message.data(), text.data(), text.size()) == 0);
    CHECK(!listener.receive_for(1ms) && writer.readers() == 1);
    auto ready = world.event("ready");
    CHECK(!ready.wait_for(1ms));
    ready.set();
    ready.wait();
    CHECK(ready.is_set() && ready.reset() && world.rank() == 0);
    auto alone = world.barrier("alone", 1);
    alone.wait();
    // What was moved from owns nothing.
    auto moved = std::move(mutex);
    CHECK(mutex.raw() == nullptr && code_of([&] { mutex.lock(); }) == TP_EINVALID);
    std::puts("classes: well");
}
