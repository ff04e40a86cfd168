// The classes of towpath.hpp: guards release, errors are exceptions, deaths are told.
#include <iostream>
#include <mutex>
#include <string>
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
        CHECK(std::string(error.what()) == tp_strerror(error.code()) || std::string(error.what()) == tp_last_error());
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

// Messages of a rank to itself, and structures of its world.
static void endpoints_and_structures() {
    auto world = towpath::world::create_with_endpoints(nullptr, 1, 4096, 1 << 20);
    auto opened = world.endpoint();
    std::uint32_t sum = 0;
    std::string taken;
    std::optional<towpath::token::place> stored;
    opened.on(1, [](towpath::token &request) {
        CHECK(request.is_request() && !request.stored());
        std::string twice = std::string(reinterpret_cast<const char *>(request.bytes().data()), request.bytes().size());
        twice += twice;
        request.reply(2, std::array{2 * request.arguments()[0]}, std::as_bytes(std::span(twice)));
    });
    opened.on(2, [&](towpath::token &reply) {
        CHECK(!reply.is_request());
        sum += reply.arguments()[0];
        taken.append(reinterpret_cast<const char *>(reply.bytes().data()), reply.bytes().size());
    });
    opened.on(3, [&](towpath::token &message) { stored = message.stored(); });
    // Its handlers move with it.
    towpath::endpoint endpoint = std::move(opened);
    endpoint.map_world();
    std::string text = "word";
    auto bytes = std::as_bytes(std::span(text));
    endpoint.request(0, 1, std::array{20u}, bytes);
    endpoint.request(0, 1, std::array{1u});
    endpoint.store(0, 3, {}, bytes, 100);
    while (sum < 42 || !stored) {
        CHECK(endpoint.wait_for(20s));
        endpoint.poll();
    }
    std::array<std::byte, 4> read;
    endpoint.read_segment(stored->offset, read);
    CHECK(stored->offset == 100 && stored->length == 4 && std::memcmp(read.data(), "word", 4) == 0);
    CHECK(sum == 42 && taken == "wordword" && endpoint.segment_size() >= 4096 && endpoint.poll() == 0);
    int status = 0;
    endpoint.on(0, [&](towpath::token &message) { status = message.status(); });
    endpoint.on(3, nullptr);
    endpoint.request(0, 3, {});
    while (status == 0) endpoint.poll();
    CHECK(status == 4 && code_of([&] { endpoint.request(7, 1, {}); }) != 0);
    endpoint.barrier();

    auto fifo = world.fifo("numbers");
    auto stack = world.stack("pile");
    auto map = world.map("table");
    CHECK(fifo.push(1) && fifo.push(2) && fifo.pop() == 1 && fifo.pop() == 2 && !fifo.pop());
    CHECK(stack.push(1) && stack.push(2) && stack.pop() == 2 && !stack.recover());
    CHECK(stack.push(~0ull) && stack.pop() == ~0ull);
    std::uint64_t pushed = 0;
    while (fifo.push(pushed)) pushed++;
    CHECK(pushed > 100 && pushed <= 255);
    CHECK(!map.insert(7, 70) && map.insert(7, 71) == 70 && map.get(7) == 71 && !map.get(8));
    CHECK(map.remove(7) == 71 && !map.remove(7) && !map.recover() && !fifo.recover());
}

int main() {
    alarm(120);
    endpoints_and_structures();
    auto in = zeroed(towpath::mutex::size(4, 1));
    auto mutex = towpath::mutex::open_or_init(in, 4);
    auto changed = towpath::condition::open(mutex, "changed");
    {
        auto guard = mutex.acquire();
        guard.value() = 7;
        CHECK(!guard.owner_died());
        CHECK(!changed.wait_for(guard, 1ms));
        int looks = 0;
        CHECK(!changed.wait_for(guard, 3ms, [] { return false; }));
        CHECK(changed.wait_for(guard, towpath::duration::max(), [&] { return ++looks == 1; }) && looks == 1);
        CHECK(changed.wait_for(guard, -1ms, [] { return true; }));
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
    CHECK(code_of([&] { auto reader = lock.read_for(1ms); }) == TP_EOWNERDEAD);
    auto reader = lock.read([](towpath::write_guard &writer) {
        writer.value() = 5;
        writer.consistent();
    });
    CHECK(reader.value() == 5 && !lock.write_for(1ms));
    CHECK(lock.read_for(1s)->value() == 5 && lock.read_for(towpath::duration::max())->value() == 5);
    in_a_dead_child([&] {
        auto own = towpath::rw_lock::open(lock_in);
        CHECK(own.read_for(1ms)->value() == 5 && !own.write_for(1ms));
    });
    auto other_in = zeroed(towpath::rw_lock::size(4));
    auto other = towpath::rw_lock::init(other_in, 4);
    {
        auto writing = other.write();
        CHECK(code_of([&] { auto reader = other.read_for(1ms); }) == TP_EDEADLOCK);
        in_a_dead_child([&] { CHECK(!towpath::rw_lock::open(other_in).read_for(3ms)); });
    }

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
    try {
        world.mutex("jobs");
        CHECK(!"a queue was opened as a mutex");
    } catch (const std::exception &error) {
        CHECK(std::string(error.what()).find("\"jobs\"") != std::string::npos);
    }
    CHECK(code_of([&] { world.mutex(nullptr); }) == TP_EINVALID);
    CHECK(std::string(tp_last_error()) == tp_strerror(TP_EINVALID));
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
        std::string longer(900, 'x'), text = "short";
        poster.send(std::as_bytes(std::span(longer)));
        fetcher.receive().give_back();
        auto held = fetcher.receive();
        CHECK(held.bytes().size() == 900 && held.bytes()[899] == std::byte{'x'} && !fetcher.receive_for(1ms));
        auto kept = std::move(held);
        CHECK(held.bytes().empty() && kept.bytes().size() == 900);
        held = std::move(kept);
        CHECK(held.bytes().size() == 900 && kept.bytes().empty());
        auto letters_in = zeroed(towpath::messages::size(2, 4, 2, 100));
        auto made = towpath::messages::init(letters_in, 2, 4, 2, 100);
        auto own = towpath::messages::open(letters_in, 4, 2, 100);
        made.poster().send(std::as_bytes(std::span(text)));
        CHECK(own.fetcher().receive().bytes().size() == text.size());
    }
    auto ring = world.broadcast("ring", 4096);
    auto writer = ring.writer();
    auto listener = ring.reader();
    std::string text = "to all";
    writer.send(std::as_bytes(std::span(text)));
    auto message = listener.receive();
    CHECK(message.size() == text.size() && std::memcmp(message.data(), text.data(), text.size()) == 0);
    CHECK(!listener.receive_for(1ms) && writer.readers() == 1);
    auto table = world.bytes("columns", 80);
    CHECK(table.as<long>().size() == 10 && table.as<long>()[9] == 0);
    table.as<long>()[9] = 7;
    CHECK(world.bytes("columns", 80).as<long>()[9] == 7);
    CHECK(code_of([&] { world.bytes("columns", 8); }) == TP_ETYPE);
    auto ready = world.event("ready");
    CHECK(!ready.wait_for(1ms));
    ready.set();
    ready.wait();
    CHECK(ready.is_set() && ready.reset() && world.rank() == 0);
    auto alone = world.barrier("alone", 1);
    alone.wait();
    alone.leave();
    CHECK(code_of([&] { alone.leave(); }) == TP_EPERM);
    // What was moved from owns nothing.
    auto moved = std::move(mutex);
    CHECK(mutex.raw() == nullptr && code_of([&] { mutex.lock(); }) == TP_EINVALID);
    std::puts("classes: well");
}
