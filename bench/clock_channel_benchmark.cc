// Measures how much time a clock request costs a training thread, compared with a message over a
// socket.
//
// The baseline is one request and its reply over a socketpair of the kind that the agent uses.
// "SocketCalls" has both ends on this thread, so it measures only the four system calls.
// "SocketRoundTrip" has another thread that replies, so it measures how long a training thread
// would wait.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/runtime/protocol/clock_channel/clock_channel.h"

namespace perseus {
namespace {

struct Ends {
  protocol::ClockChannel agent;
  protocol::ClockPublisher client;
};

Ends Connected() {
  auto agent = protocol::ClockChannel::Create(8);
  std::vector<FileDescriptor> passed;
  for (const int fd : agent->descriptors()) passed.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  auto client = protocol::ClockPublisher::Attach(std::move(passed));
  return {std::move(*agent), std::move(*client)};
}

// ---- The channel ----

void PublishAgentAwake(benchmark::State& state) {
  Ends ends = Connected();
  for (auto _ : state) benchmark::DoNotOptimize(ends.client.Publish(0, 1410));
}
BENCHMARK(PublishAgentAwake);

// The worker has announced that it will sleep, but does not sleep. So this measures only the write
// to the eventfd.
void PublishAgentAboutToSleep(benchmark::State& state) {
  Ends ends = Connected();
  ends.agent.Announce(0, protocol::ClockChannel::Sleep::kAboutToSleep);
  for (auto _ : state) benchmark::DoNotOptimize(ends.client.Publish(0, 1410));
}
BENCHMARK(PublishAgentAboutToSleep);

// The worker sleeps in poll() before each request, so the time includes the wake-up of its thread.
void PublishAgentAsleep(benchmark::State& state) {
  Ends ends = Connected();
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> is_over = false;
  std::thread agent([&] {
    std::uint32_t dealt_with = 0;
    while (!is_over) {
      ends.agent.DrainWakeups(0);
      dealt_with = ends.agent.Latest(0).sequence;
      ends.agent.Announce(0, protocol::ClockChannel::Sleep::kAboutToSleep);
      ends.agent.Answer(0, {dealt_with, 0, protocol::ClockOutcome::kAccepted, 0});
      if (ends.agent.Latest(0).sequence == dealt_with) {
        pollfd wanted{ends.agent.wakeup(0), POLLIN, 0};
        ::poll(&wanted, 1, -1);
      }
      ends.agent.Announce(0, protocol::ClockChannel::Sleep::kAwake);
    }
  });
  for (auto _ : state) {
    const auto begin = Clock::now();
    const std::uint32_t sequence = ends.client.Publish(0, 1410);
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
    while (ends.client.answer(0).sequence != sequence) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  is_over = true;
  ends.client.Publish(0, 0);
  agent.join();
}
BENCHMARK(PublishAgentAsleep)->UseManualTime()->Iterations(5000);

void Beat(benchmark::State& state) {
  Ends ends = Connected();
  for (auto _ : state) ends.client.Beat();
}
BENCHMARK(Beat);

void ReadAnswer(benchmark::State& state) {
  Ends ends = Connected();
  ends.agent.Answer(0, {1, 1410, protocol::ClockOutcome::kInEffect, 1});
  for (auto _ : state) benchmark::DoNotOptimize(ends.client.answer(0));
}
BENCHMARK(ReadAnswer);

// ---- The socket ----

constexpr std::string_view kMessage = R"({"perseus":1,"set":{"lease":"7","sm_clock_mhz":1410}})";
using Buffer = std::array<char, 4096>;

struct Pair {
  FileDescriptor agent;
  FileDescriptor client;
};
Pair Connection() {
  int ends[2] = {-1, -1};
  (void)::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Receives a message from `socket`. Returns false at the end of the stream.
bool Receive(int socket, Buffer& buffer) {
  return ::recv(socket, buffer.data(), buffer.size(), 0) > 0;
}
void Send(int socket) {
  benchmark::DoNotOptimize(::send(socket, kMessage.data(), kMessage.size(), MSG_NOSIGNAL));
}

void SocketCalls(benchmark::State& state) {
  const Pair pair = Connection();
  Buffer buffer;
  for (auto _ : state) {
    Send(pair.client.get());
    Receive(pair.agent.get(), buffer);
    Send(pair.agent.get());
    Receive(pair.client.get(), buffer);
  }
}
BENCHMARK(SocketCalls);

void SocketRoundTrip(benchmark::State& state) {
  Pair pair = Connection();
  std::thread agent([&] {
    Buffer buffer;
    while (Receive(pair.agent.get(), buffer)) Send(pair.agent.get());
  });
  Buffer buffer;
  for (auto _ : state) {
    Send(pair.client.get());
    Receive(pair.client.get(), buffer);
  }
  pair.client = FileDescriptor();
  agent.join();
}
BENCHMARK(SocketRoundTrip)->UseRealTime();

}  // namespace
}  // namespace perseus

BENCHMARK_MAIN();
