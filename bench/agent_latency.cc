// Measures the time from a request of a training process until the agent calls the driver. Measures
// it on an idle machine, and with every core busy. For comparison, the same run measures how long
// an eventfd takes to wake a thread. Also measures the cost of an idle agent.
//
//   agent_latency [requests]
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "perseus/runtime/agent/gpu_worker.h"

namespace perseus {
namespace {

constexpr auto kBetweenRequests = std::chrono::microseconds(2'000);

// A driver that returns at once, and records when it was called.
class NotingDevice : public device::Device {
 public:
  explicit NotingDevice(std::atomic<Nanoseconds>& called_at) : called_at_(called_at) {
    for (int mhz = 210; mhz <= 1410; mhz += 15) info_.sm_clocks_mhz.push_back(mhz);
  }
  const device::DeviceInfo& info() const override { return info_; }
  device::DeviceResult<device::Telemetry> Read() override { return device::Telemetry{}; }
  device::DeviceResult<device::SettingReading> ReadSetting(device::Control) override {
    return device::SettingReading{};
  }
  device::DeviceResult<void> Apply(device::Control,
                                   const std::optional<device::Setting>&) override {
    called_at_ = MonotonicNow();
    return {};
  }
  device::DeviceResult<device::Effect> ReadEffect(device::Control,
                                                  const std::optional<device::Setting>&) override {
    return device::Effect{device::EffectState::kInEffect, 0, {}};
  }

 private:
  std::atomic<Nanoseconds>& called_at_;
  device::DeviceInfo info_;
};

void Report(const char* what, std::vector<Nanoseconds> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    const auto i = static_cast<std::size_t>(part * static_cast<double>(times.size() - 1));
    return static_cast<double>(times[i]) / 1000;
  };
  fmt::print("{:<44} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f}\n", what, at(0.5), at(0.9),
             at(0.99), at(0.999), at(1));
}

std::vector<Nanoseconds> MeasureRequests(int requests) {
  std::atomic<Nanoseconds> called_at = 0;
  agent::GpuWorker worker(std::make_unique<NotingDevice>(called_at));
  auto channel = std::make_shared<protocol::ClockChannel>(*protocol::ClockChannel::Create(1));
  std::vector<FileDescriptor> descriptors;
  for (const int fd : channel->descriptors()) {
    descriptors.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  protocol::ClockPublisher publisher = *protocol::ClockPublisher::Attach(std::move(descriptors));
  worker.Serve(channel, 0, std::nullopt);
  std::vector<Nanoseconds> times;
  for (int i = 0; i < requests; ++i) {
    std::this_thread::sleep_for(kBetweenRequests);
    called_at = 0;
    const Nanoseconds start = MonotonicNow();
    publisher.Publish(0, i % 2 == 0 ? 1410 : 1200);
    // This thread does not spin, because spinning would take a core from the worker.
    while (called_at == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    times.push_back(called_at - start);
  }
  return times;
}

// Measures the least time that any such design needs on this machine: one thread wakes another
// thread from poll().
std::vector<Nanoseconds> MeasureWaking(int requests) {
  const FileDescriptor bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::atomic<Nanoseconds> woken_at = 0;
  std::atomic<bool> is_over = false;
  std::thread sleeper([&] {
    while (!is_over) {
      pollfd waited{.fd = bell.get(), .events = POLLIN, .revents = 0};
      poll(&waited, 1, -1);
      woken_at = MonotonicNow();
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = read(bell.get(), &count, sizeof count);
    }
  });
  std::vector<Nanoseconds> times;
  const std::uint64_t one = 1;
  for (int i = 0; i < requests; ++i) {
    std::this_thread::sleep_for(kBetweenRequests);
    woken_at = 0;
    const Nanoseconds start = MonotonicNow();
    [[maybe_unused]] const auto written = write(bell.get(), &one, sizeof one);
    while (woken_at == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    times.push_back(woken_at - start);
  }
  is_over = true;
  [[maybe_unused]] const auto written = write(bell.get(), &one, sizeof one);
  sleeper.join();
  return times;
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Prints the cost of workers without requests.
void ReportIdle(int gpus) {
  std::atomic<Nanoseconds> called_at = 0;
  std::vector<std::unique_ptr<agent::GpuWorker>> workers;
  for (int i = 0; i < gpus; ++i) {
    workers.push_back(
        std::make_unique<agent::GpuWorker>(std::make_unique<NotingDevice>(called_at)));
  }
  constexpr int kSeconds = 5;
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
  fmt::print("{} idle GPUs: {:.3f} % of a core\n", gpus, 100 * (CpuSeconds() - before) / kSeconds);
}

std::vector<pid_t> StartLoad() {
  std::vector<pid_t> children;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      // A relaxed access costs little, and the compiler does not remove it.
      for (std::atomic<unsigned> count = 0;; count.fetch_add(1, std::memory_order_relaxed)) {
      }
    }
    children.push_back(child);
  }
  return children;
}

void Run(int requests) {
  fmt::print("microseconds {:>40} {:>8} {:>8} {:>8} {:>8}\n", "p50", "p90", "p99", "p99.9", "max");
  Report("request to driver's call", MeasureRequests(requests));
  Report("  waking a thread, alone", MeasureWaking(requests));
  const std::vector<pid_t> load = StartLoad();
  Report("request to driver's call, all cores busy", MeasureRequests(requests));
  Report("  waking a thread, alone", MeasureWaking(requests));
  for (const pid_t child : load) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  ReportIdle(8);
}

}  // namespace
}  // namespace perseus

int main(int argc, char** argv) {
  perseus::Run(argc > 1 ? std::atoi(argv[1]) : 5'000);
  return 0;
}
