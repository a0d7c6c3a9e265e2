// Measures how much time the two calls around an instruction cost a training thread, in C. The
// cases are: nothing is set up, a plan keeps its clock, a plan changes the clock each time, and a
// stream. Another case measures how late a request behind a stream is. (The stream has a fake
// driver, so the microseconds of a real driver are not included.) For comparison, the program
// measures two other ways to hook an instruction. The first way is a message to a thread, through a
// queue with a mutex. The second way is a request and its reply over a TCP connection to this
// machine. (This is the least cost of HTTP, without any parsing.)
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "perseus.h"
#include "perseus/base/clock.h"
#include "perseus/base/mutex.h"
#include "perseus/base/statistics.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/support/planned_pipeline.h"
#include "tests/support/temporary_directory.h"

namespace perseus {
namespace {

constexpr int kMicrobatches = 32;  // 64 instructions in each step.

// A virtual GPU and its agent. The destructor removes both.
class Node {
 public:
  Node() {
    std::ofstream(directory_ / "node.toml") << "name = \"bench\"\ngpus = 1\n[gpu]\n"
                                               "model = \"a100-sxm\"\n";
    agent_ = fork();
    if (agent_ == 0) {
      execl(PERSEUS_PROGRAM, PERSEUS_PROGRAM, "agent", "--devices", devices().c_str(), "--socket",
            socket().c_str(), "--state", (directory_ / "agent.json").c_str(), "--metrics", "off",
            "--log-level", "error", nullptr);
      _exit(127);
    }
    while (!std::filesystem::exists(socket())) std::this_thread::sleep_for(kNap);
  }
  ~Node() {
    kill(agent_, SIGTERM);
    waitpid(agent_, nullptr, 0);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::string socket() const { return (directory_ / "agent.sock").string(); }
  std::string devices() const { return "virtual:" + (directory_ / "node.toml").string(); }
  // Returns a plan file for a GPipe iteration of one pp_rank. The clocks of its instructions
  // alternate between the two parameters.
  std::string PlanFile(int even_mhz, int odd_mhz) const {
    plan_file::PlanFile plan =
        PlanPipeline({.name = "gpipe", .pp_ranks = 1, .microbatches = kMicrobatches});
    bool is_odd = false;
    for (plan_file::PlannedInstruction& instruction : plan.pp_ranks[0].instructions) {
      instruction.frequency_mhz = is_odd ? odd_mhz : even_mhz;
      is_odd = !is_odd;
    }
    const auto path = directory_ / "plan.json";
    std::ofstream(path) << plan_file::FormatPlan(plan);
    return path.string();
  }

 private:
  static constexpr auto kNap = std::chrono::milliseconds(10);
  TemporaryDirectory directory_;
  pid_t agent_ = 0;
};

perseus_session* Open(const std::string& agent, const std::string& devices,
                      const std::string& plan) {
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.agent = agent.c_str();
  options.devices = devices.c_str();
  options.gpu = "0";
  options.plan = plan.c_str();
  return perseus_open(&options);
}

// The benchmark pauses after this many steps. Real instructions take milliseconds, but here they
// take almost no time. Without pauses, the client would soon drop instructions instead of recording
// them. Dropping is cheaper, so the measurement would be wrong.
constexpr int kStepsAtATime = 32;
constexpr int kInstructions = 64 * kStepsAtATime * 50;
void LetBackgroundThreadCatchUp(benchmark::State& state) {
  state.PauseTiming();
  // The writer wakes up every 50 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  state.ResumeTiming();
}

// Runs steps of 64 instructions. The measured time is the time of the two calls of one instruction,
// plus its share of the two calls of the step.
template <typename Begin, typename End>
void RunSteps(benchmark::State& state, perseus_session* session, Begin begin, End end) {
  int at = 2 * kMicrobatches;
  int steps = 0;
  for (auto _ : state) {
    if (at == 2 * kMicrobatches) {
      perseus_step_end(session);
      if (++steps % kStepsAtATime == 0) LetBackgroundThreadCatchUp(state);
      perseus_step_begin(session);
      at = 0;
    }
    const int kind = at < kMicrobatches ? PERSEUS_FORWARD : PERSEUS_BACKWARD;
    begin(kind, at % kMicrobatches);
    end();
    ++at;
  }
  perseus_counters counters{};
  counters.size = sizeof counters;
  perseus_read_counters(session, &counters);
  state.counters["clocks"] = static_cast<double>(counters.clock_requests);
  state.counters["dropped"] = static_cast<double>(counters.records_dropped);
  state.counters["off_plan"] = static_cast<double>(counters.steps_off_plan);
  perseus_close(session);
}

void RunOnThread(benchmark::State& state, perseus_session* session) {
  RunSteps(
      state, session,
      [session](int kind, int microbatch) {
        perseus_instruction_begin(session, kind, microbatch, 0);
      },
      [session] { perseus_instruction_end(session); });
}

void NoAgent(benchmark::State& state) { RunOnThread(state, Open("off", "off", "")); }
BENCHMARK(NoAgent)->Iterations(kInstructions);

void PlanWithOneClock(benchmark::State& state) {
  const Node node;
  RunOnThread(state, Open(node.socket(), node.devices(), node.PlanFile(1410, 1410)));
}
BENCHMARK(PlanWithOneClock)->Iterations(kInstructions);

void PlanWithAClockEach(benchmark::State& state) {
  const Node node;
  RunOnThread(state, Open(node.socket(), node.devices(), node.PlanFile(1410, 1005)));
}
BENCHMARK(PlanWithAClockEach)->Iterations(kInstructions);

void OnAStream(benchmark::State& state) {
  const Node node;
  setenv("PERSEUS_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
  fake_cuda::Reset();
  void* stream = fake_cuda::MakeStream();
  perseus_session* session = Open(node.socket(), node.devices(), node.PlanFile(1410, 1410));
  int instructions = 0;
  RunSteps(
      state, session,
      [&](int kind, int microbatch) {
        perseus_instruction_begin_on(session, kind, microbatch, 0, stream);
      },
      [&] {
        perseus_instruction_end_on(session, stream);
        // Waits for the GPU. The wait is not work of the client, so it does not count.
        if (++instructions % 64 != 0) return;
        state.PauseTiming();
        fake_cuda::Advance(1'000'000);
        state.ResumeTiming();
      });
}
BENCHMARK(OnAStream)->Iterations(kInstructions);

// How late the clock of the next instruction is requested, after the GPU has passed the end of the
// instruction before it. Each instruction takes 3 ms of real time, and the training thread is 16
// steps ahead. For comparison: how late a thread wakes up that sleeps until a time.
Nanoseconds SleepUntil(Nanoseconds until) {
  const timespec at{until / kSecond, until % kSecond};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
  return MonotonicNow() - until;
}

double MedianUs(std::vector<double> times_ns) { return Median(times_ns) / kMicrosecond; }

void RequestBehindAStream(benchmark::State& state) {
  constexpr Nanoseconds kDuration = 3 * kMillisecond;
  constexpr int kSteps = 16;
  const Node node;
  setenv("PERSEUS_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
  fake_cuda::Reset();
  void* stream = fake_cuda::MakeStream();
  perseus_session* session = Open(node.socket(), node.devices(), node.PlanFile(1410, 1005));
  perseus_counters counters{};
  counters.size = sizeof counters;
  const auto requests = [&] {
    perseus_read_counters(session, &counters);
    return counters.clock_requests;
  };
  std::vector<double> late_ns;
  std::vector<double> wake_up_ns;
  for (auto _ : state) {
    for (int i = 0; i < kSteps; ++i) {
      perseus_step_begin(session);
      for (int at = 0; at < 2 * kMicrobatches; ++at) {
        const int kind = at < kMicrobatches ? PERSEUS_FORWARD : PERSEUS_BACKWARD;
        perseus_instruction_begin_on(session, kind, at % kMicrobatches, 0, stream);
        fake_cuda::Launch(stream, kDuration);
        perseus_instruction_end_on(session, stream);
      }
      perseus_step_end(session);
    }
    // The last instruction of a step requests nothing.
    Nanoseconds next = MonotonicNow();
    for (int i = 1; i <= kSteps * 2 * kMicrobatches; ++i) {
      wake_up_ns.push_back(static_cast<double>(SleepUntil(next += kDuration)));
      const std::uint64_t before = requests();
      const Nanoseconds passed = MonotonicNow();
      fake_cuda::Advance(kDuration);
      while (requests() == before && MonotonicNow() < passed + kMillisecond) {
      }
      if (requests() != before) late_ns.push_back(static_cast<double>(MonotonicNow() - passed));
    }
  }
  state.counters["requests"] = static_cast<double>(late_ns.size());
  state.counters["late_us"] = MedianUs(late_ns);
  state.counters["wake_up_us"] = MedianUs(wake_up_ns);
  perseus_close(session);
}
BENCHMARK(RequestBehindAStream)
    ->Iterations(1)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

// ---- Other ways ----

// Sends one message at the begin and one message at the end of an instruction, through a queue to a
// thread.
void Queue(benchmark::State& state) {
  struct Message {
    int kind = 0;
    int microbatch = 0;
    timespec at{};
  };
  Mutex mutex;
  std::condition_variable_any has_come;
  std::deque<Message> queue;
  bool is_over = false;
  std::thread worker([&] {
    const MutexLock lock(mutex);
    while (!is_over) {
      while (!is_over && queue.empty()) has_come.wait(mutex);
      queue.clear();
    }
  });
  const auto send = [&](int kind, int microbatch) {
    Message message{kind, microbatch, {}};
    clock_gettime(CLOCK_MONOTONIC, &message.at);
    {
      const MutexLock lock(mutex);
      queue.push_back(message);
    }
    has_come.notify_one();
  };
  for (auto _ : state) {
    send(0, 1);
    send(1, 1);
  }
  {
    const MutexLock lock(mutex);
    is_over = true;
  }
  has_come.notify_one();
  worker.join();
}
BENCHMARK(Queue);

// At the begin and at the end of an instruction, sends a request of a hundred bytes and waits for
// its reply. The connection stays open.
void LoopbackRequest(benchmark::State& state) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return state.SkipWithError("no loopback");
  }
  std::thread server([listener] {
    const int client = accept(listener, nullptr, nullptr);
    char request[256];
    while (read(client, request, sizeof request) > 0) {
      if (write(client, "HTTP/1.1 204 No Content\r\n\r\n", 27) != 27) break;
    }
    close(client);
  });
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(client, reinterpret_cast<sockaddr*>(&address), length) != 0) std::abort();
  const std::string request(100, 'x');
  char reply[64];
  const auto ask = [&] {
    if (write(client, request.data(), request.size()) < 0 ||
        read(client, reply, sizeof reply) < 0) {
      std::abort();
    }
  };
  for (auto _ : state) {
    ask();
    ask();
  }
  close(client);
  server.join();
  close(listener);
}
BENCHMARK(LoopbackRequest);

}  // namespace
}  // namespace perseus

BENCHMARK_MAIN();
