// Virtual time that the processes of one or several nodes share. Time stands still while any of the
// processes computes. When all of them wait, time jumps to the earliest moment that a process waits
// for. So the results of a job on virtual GPUs do not depend on the machine or its load, and a
// minute of training takes seconds.
//
//   const auto clock = SharedClock::Open("job.clock");
//   // This thread takes part as long as `part` lives.
//   const auto part = (*clock)->TakePart(Clock::Part::kFollows);
//   ... compute: no time passes ...
//   (*clock)->WaitWhile(word, value, (*clock)->Now() + 10'000'000);
//
// A virtual node uses this clock if its description has `clock = "job.clock"`. Its agent, the ranks
// that compute on the node, and all processes that follow their job directory also use it.
//
// This is a conservative discrete-event simulation (Chandy and Misra, 1979) of real processes:
// 1. A thread that takes part has a slot in the file: it runs, or it waits until a moment. Threads
//    that take no part may wait, too. While they run, time goes on.
// 2. Time moves only while no thread that takes part runs. It moves to the earliest moment that a
//    thread waits for. The last thread that begins to wait moves it. Before this thread wakes the
//    threads whose moment has come, it marks all of them as running.
// 3. A waiting thread may have been woken by another one (through a socket, an eventfd or a futex),
//    but may not have run yet. The kernel marks the thread as runnable before the call that wakes
//    it returns. So before a thread moves the time, it reads /proc/PID/task/TID/stat of all waiting
//    threads, and moves the time only if all of them are asleep. So no code has to count messages
//    in flight, and the hot path of the client library and the protocol with the agent need no
//    change. Threads that wait only for time (kPeriodic) are not checked.
// 4. If nothing leads (kLeads, a trainer with running steps, or kProcess), time is never faster
//    than real time. Otherwise, the timeout of a process that waits for a job would pass at once.
// 5. A process may die at any instruction. So the mutex is robust, and a slot names its thread and
//    the start time of the thread. Every 100 ms of real time, waiting threads check whether the
//    last running thread has died. If a process is stopped (SIGSTOP), the time stops for all.
// 6. A process of a training framework also waits for messages, of which the clock knows nothing.
//    It takes part as a whole (kProcess): time moves only while all its threads sleep. No thread
//    learns from the kernel when they do. So while such processes take part, one of them looks
//    up to 5,000 times a second, and only this one moves the time. A message that is neither sent
//    nor received by a running thread (a delayed interrupt of the network, a process that takes no
//    part) may arrive too late in virtual time.
//
// Alternatives that we rejected:
// - A rate (virtual seconds per real second, virtual_node_file.h). It multiplies the delays of the
//   real scheduler. Eight ranks on two cores wake up milliseconds late, so with a rate above 1, the
//   result depends on the machine. At a rate of 1, a busy machine makes steps longer, and plans
//   look slow.
// - Counting messages in flight (the sender adds one, the receiver subtracts one). It is cheaper,
//   but every channel has to count, including the hot path of the client, and the count has to be
//   corrected after each death.
// - One process with a fake clock. It is fast and exact, but tests no processes, sockets and
//   signals. Tests that need no processes use it (tests/tuning).
// - A time namespace or libfaketime. They shift or scale time, but cannot stop it while a process
//   computes.
//
// Cost: a check of a thread takes 4 us, and a switch to another thread 30 us (two cores of a
// virtual machine). Two pipelines of four ranks, with agents and a job directory, take 35 ms of
// real time for a step of 0.53 s, which is 15 times faster than real time.
//
// It works only on Linux. The processes have to see each other in /proc. They trust the contents of
// the file, as they trust the state of a virtual node.
//
// Thread safety: all calls may come from several threads and processes at the same time.
#pragma once

#include <pthread.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/simulation/virtual_gpu/thread_state.h"

namespace perseus::virtual_gpu {

class SharedClock final : public Clock, public std::enable_shared_from_this<SharedClock> {
 public:
  // Opens the clock in the file. Creates the clock if the file does not exist or is from an earlier
  // boot. Fails (kInput) if the file has other content, and (kSystem) if a system call fails.
  static Result<std::shared_ptr<SharedClock>> Open(const std::filesystem::path& file);
  SharedClock(const SharedClock&) = delete;
  SharedClock& operator=(const SharedClock&) = delete;
  ~SharedClock() override;

  const std::filesystem::path& file() const { return file_; }

  Nanoseconds Now() override;
  Nanoseconds SinceEpoch() override;
  // Both may return early, without a reason, after 100 ms of real time.
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds until) override;
  int Poll(std::span<pollfd> descriptors, Nanoseconds until) override;
  // Returns null if all slots are taken. Then time goes on while this thread runs.
  std::shared_ptr<void> TakePart(Part part) override;

  // For tests: simulates a process that is stopped while it holds the mutex of the file. The
  // process continues when the same thread destroys the result.
  std::shared_ptr<void> HoldMutex();

 private:
  struct Slot;
  struct Layout;
  class Guard;
  class Beginning;
  class Participation;
  class ProcessParticipation;
  struct Mapping;
  class PollSocket;
  // How a waiting thread sleeps, and how it is woken.
  struct Sleep {
    bool has_socket = false;
    std::function<bool()> has_event;         // A call that returns at once.
    std::function<void(Nanoseconds)> sleep;  // Sleeps at most this long, in real time.
  };
  struct ThreadFile {
    FileDescriptor file;
    std::uint32_t generation = 0;
  };
  // Whether to trust a slot that says "running", or to check its thread.
  enum class Running { kTrust, kCheck };
  // What the slots say.
  struct Survey {
    bool has_running = false;    // A thread of a process that does not take part as a whole.
    bool has_processes = false;  // Processes take part as a whole.
    bool is_beginning = false;   // A thread of such a process begins to wait.
    bool is_led = false;
    Nanoseconds next = kNever;  // The earliest moment that a thread waits for.
  };

  static Result<Mapping> Map(const std::filesystem::path& file);
  static void Initialize(void* address);
  SharedClock(std::filesystem::path file, void* address, FileDescriptor sender);
  Layout& layout() const;
  template <typename IsWanted>
  Slot* FindSlot(IsWanted is_wanted) const;
  Slot* FindOwnSlot() const;
  Slot* FindProcessSlot() const;
  Slot* ClaimSlot(Part part);
  void Leave(Slot& slot);
  void Wait(Nanoseconds until, const Sleep& sleep);
  Survey LookAtSlots(Running running);
  Nanoseconds TryToMove(const Slot* own, const Sleep* sleep, Running running);
  void Watch(const std::atomic<std::uint32_t>& is_over);
  bool MoveIfProcessesSleep(std::map<pid_t, ProcessState>& processes);
  const Slot* FindAwake(const Slot* own);
  Nanoseconds RealTimeOf(Nanoseconds time) const;
  void MoveTo(Nanoseconds time, const Slot* own, bool is_led);
  void Wake(const Slot& slot) const;
  bool IsGone(const Slot& slot) { return Look(slot).state == 0; }
  ThreadState Look(const Slot& slot);

  std::filesystem::path file_;
  void* address_;
  FileDescriptor sender_;                 // Wakes threads that poll.
  std::vector<ThreadFile> thread_files_;  // [slot]; guarded by the file's mutex.
};

// Set and open the clock of a job. The directory of the job has a link named `clock` to the file of
// the clock. Without this link, the job runs in real time. Every process that follows the job uses
// this clock.
Result<void> SetClockOfJob(const std::filesystem::path& job_directory,
                           const std::filesystem::path& clock);
Result<std::shared_ptr<Clock>> OpenClockOfJob(const std::filesystem::path& job_directory);

}  // namespace perseus::virtual_gpu
