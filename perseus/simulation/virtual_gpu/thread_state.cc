#include "perseus/simulation/virtual_gpu/thread_state.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace perseus::virtual_gpu {
namespace {

// Returns an empty list if the process is gone.
std::vector<pid_t> ThreadsOf(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code error;
  std::filesystem::directory_iterator entries(fmt::format("/proc/{}/task", process), error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread != gettid()) threads.push_back(thread);
  }
  return threads;
}

std::string TaskFile(pid_t process, pid_t thread, const char* name) {
  return fmt::format("/proc/{}/task/{}/{}", process, thread, name);
}

// Returns how often the thread began to run: the last number of schedstat.
std::optional<std::uint64_t> RunsOf(pid_t process, pid_t thread) {
  std::ifstream file(TaskFile(process, thread, "schedstat"));
  std::uint64_t run_time = 0;
  std::uint64_t delay = 0;
  std::uint64_t runs = 0;
  if (file >> run_time >> delay >> runs) return runs;
  return std::nullopt;
}

// The clocks of the CPU time of a process and of a thread (MAKE_PROCESS_CPUCLOCK of the kernel).
// The kernel shows the clock of a thread only within its process.
Nanoseconds ReadCpuClock(pid_t id, bool is_thread) {
  const auto clock =
      static_cast<clockid_t>((~static_cast<unsigned>(id) << 3U) | 2U | (is_thread ? 4U : 0U));
  timespec time{};
  return clock_gettime(clock, &time) == 0 ? time.tv_sec * kSecond + time.tv_nsec : 0;
}

}  // namespace

FileDescriptor OpenThreadState(pid_t process, pid_t thread) {
  return FileDescriptor(open(TaskFile(process, thread, "stat").c_str(), O_RDONLY | O_CLOEXEC));
}

ThreadState ReadThreadState(const FileDescriptor& file) {
  std::array<char, 1024> text{};
  const ssize_t size = !file ? -1 : pread(file.get(), text.data(), text.size(), 0);
  if (size <= 0) return {};
  // The text is "PID (NAME) STATE ...", and a name may have any characters. Counted from STATE, the
  // 18th word is the number of threads, and the 20th word is the start time.
  const char* const end = text.data() + size;
  const std::string_view all(text.data(), static_cast<std::size_t>(size));
  const char* at = text.data() + all.rfind(')') + 2;
  if (at >= end) return {};
  ThreadState thread{*at, 0, 0};
  if (thread.state == 'Z' || thread.state == 'X') return {};
  for (int word = 1; word < 20 && at < end; ++word) {
    if (word == 18) std::from_chars(at, end, thread.threads);
    at = std::find(at, end, ' ') + 1;
  }
  if (at < end) std::from_chars(at, end, thread.started);
  return thread;
}

Nanoseconds ProcessState::CpuTime() const {
  if (process_ != getpid()) return ReadCpuClock(process_, false);
  Nanoseconds sum = 0;
  for (const auto& [id, thread] : threads_) sum += ReadCpuClock(id, true);
  return sum;
}

void ProcessState::FindThreads(bool is_period_over) {
  std::map<pid_t, Thread> found;
  for (const pid_t id : ThreadsOf(process_)) {
    auto known = threads_.extract(id);
    const bool is_new = known.empty();
    Thread thread = is_new ? Thread() : std::move(known.mapped());
    if (is_new || is_period_over) {
      const auto runs = RunsOf(process_, id);
      thread.is_quiet = !is_new && runs && runs == thread.runs;
      thread.runs = runs;
    }
    found.emplace(id, std::move(thread));
  }
  threads_ = std::move(found);
  if (is_period_over) looks_left_ = kPeriod;
}

bool ProcessState::IsAwake(pid_t id) {
  Thread& thread = threads_[id];
  if (!thread.state) thread.state = OpenThreadState(process_, id);
  ThreadState now = ReadThreadState(thread.state);
  if (now.state == 0) {
    // Another thread may have the same number now.
    thread.state = OpenThreadState(process_, id);
    now = ReadThreadState(thread.state);
  }
  return now.state != 0 && now.state != 'S';
}

bool ProcessState::StillRuns() { return threads_.contains(last_awake_) && IsAwake(last_awake_); }

bool ProcessState::Sleeps() {
  if (!main_) main_ = OpenThreadState(process_, process_);
  const int count = ReadThreadState(main_).threads;
  const bool is_period_over = --looks_left_ < 0;
  if (std::exchange(thread_count_, count) != count || is_period_over) FindThreads(is_period_over);
  const auto awake = std::find_if(threads_.begin(), threads_.end(), [&](const auto& thread) {
    return !thread.second.is_quiet && IsAwake(thread.first);
  });
  last_awake_ = awake == threads_.end() ? 0 : awake->first;
  return awake == threads_.end();
}

}  // namespace perseus::virtual_gpu
