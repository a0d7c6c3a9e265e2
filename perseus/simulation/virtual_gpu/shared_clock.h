// Virtual time that the processes of a node, or of several, share: it stands still while any of
// them computes, and jumps to the next moment that one waits for when all of them wait. So what a
// job on virtual GPUs measures does not depend on the machine or on what else runs there, and a
// minute of training takes seconds.
//
//   const auto clock = SharedClock::Open("job.clock");
//   const auto part = (*clock)->TakePart(Clock::Part::kFollows);  // This thread, while `part`
//   lives.
//   ... compute: no time passes ...
//   (*clock)->WaitWhile(word, value, (*clock)->Now() + 10'000'000);
//
// A virtual node whose description says `clock = "job.clock"` lives in that time, and so do its
// agent, the ranks that compute on it, and whoever follows a job directory of theirs.
//
// This is a conservative discrete-event simulation (Chandy and Misra, 1979) of real processes:
//  1. A thread that takes part has a slot in the file: it runs, or it waits until a moment. Threads
//     that take no part may wait, too; they hold nothing up while they run.
//  2. Time moves only while nobody runs, to the earliest moment that is waited for. The thread that
//     waits last moves it, and marks those whose moment it is as running before it wakes them.
//  3. A waiting thread may have been woken by another one, through a socket, an eventfd or a futex,
//     and not have come to run yet. The kernel marks it runnable before the call that woke it
//     returns, so whoever moves the time first looks at /proc/PID/task/TID/stat of all who wait:
//     unless each is asleep, time stays. So nothing has to count the messages on their way, and the
//     hot path of the client library and the protocol with the agent are the same as elsewhere.
//     Threads that wait for time alone (kPeriodic) are not looked at.
//  4. Without a thread that leads (a trainer whose steps run) time goes no faster than real time,
//  so
//     that nobody who waits for a job to begin runs out of patience at once.
//  5. A process may die at any instruction. The mutex is robust, a slot names its thread and when
//     that began, and waiters look again every 100 ms of real time: the last one to run may have
//     died. A process that is stopped (SIGSTOP) stops the time of all.
//
// What was considered and not chosen:
//  - A rate (virtual seconds a real second, virtual_node_file.h): delays of the real scheduler are
//    multiplied by it. Eight ranks on two cores are woken late by milliseconds, so a rate above 1
//    measures the machine; at 1, a busy machine lengthens steps, and plans look slow.
//  - Counting messages on their way (each sender counts up, each receiver down): cheaper, but every
//    channel has to count, the client's hot path included, and each death in between has to be
//    corrected for.
//  - One process with a fake clock: fast and exact, and no test of processes, sockets and signals.
//    What needs no processes is tested so (tests/tuning).
//  - A time namespace or libfaketime: they shift or scale time; they cannot stop it for as long as
//    somebody computes.
//
// Cost: one look at a thread takes 4 us, and a switch to another thread 30 us (two cores of a
// virtual machine). Two pipelines of four ranks, with agents and a job directory, take 35 ms of
// real time for a step of 0.53 s: 15 times faster than real time.
//
// Linux only; the processes see each other in /proc. The file is trusted as a virtual node's is.
//
// Thread safety: all calls may come from several threads and processes at a time.
#pragma once

#include <pthread.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::virtual_gpu {

class SharedClock final : public Clock, public std::enable_shared_from_this<SharedClock> {
 public:
  // The clock of that file, made if it is not there or is left of an earlier boot. Fails (kInput)
  // if the file is something else, and with kSystem if the machine refuses.
  static Result<std::shared_ptr<SharedClock>> Open(const std::filesystem::path& file);
  SharedClock(const SharedClock&) = delete;
  SharedClock& operator=(const SharedClock&) = delete;
  ~SharedClock() override;

  const std::filesystem::path& file() const { return file_; }

  Nanoseconds Now() override;
  Nanoseconds SinceEpoch() override;
  // These return for no reason, too, after 100 ms of real time.
  void WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 Nanoseconds until) override;
  int Poll(std::span<pollfd> descriptors, Nanoseconds until) override;
  // Null if all slots are taken: then this thread holds nothing up.
  std::shared_ptr<void> TakePart(Part part) override;

 private:
  struct Slot;
  struct Layout;
  class Guard;
  class Seat;
  class PollSocket;
  // How a waiting thread sleeps, and how it is woken.
  struct Sleep {
    bool has_socket = false;
    std::function<bool()> has_event;         // Without waiting.
    std::function<void(Nanoseconds)> sleep;  // For so long in real time, at most.
  };
  struct Task {
    char state = 0;  // As in /proc/PID/stat; 0: it is gone.
    std::uint64_t started = 0;
  };
  struct TaskFile {
    FileDescriptor file;
    std::uint32_t generation = 0;
  };
  enum class Running { kBelieve, kCheck };

  SharedClock(std::filesystem::path file, void* address, FileDescriptor sender);
  Layout& layout() const;
  Slot* FindOwnSlot() const;
  Slot* ClaimSlot(Part part);
  void Leave(Slot& slot);
  void Wait(Nanoseconds until, const Sleep& sleep);
  Nanoseconds TryToMove(const Slot* own, const Sleep* sleep, Running running);
  const Slot* FindAwake(const Slot* own);
  Nanoseconds RealTimeOf(Nanoseconds time) const;
  void MoveTo(Nanoseconds time, const Slot* own, bool is_led);
  void Wake(const Slot& slot) const;
  bool IsGone(const Slot& slot) { return Look(slot).state == 0; }
  Task Look(const Slot& slot);

  std::filesystem::path file_;
  void* address_;
  FileDescriptor sender_;             // Wakes threads that poll.
  std::vector<TaskFile> task_files_;  // [slot]; guarded by the file's mutex.
};

// A job directory says of which clock the times in it are: by a link of the name `clock`, and by
// none if it is real time. Whoever follows the job waits by that clock, too.
Result<void> SetClockOfJob(const std::filesystem::path& job_directory,
                           const std::filesystem::path& clock);
Result<std::shared_ptr<Clock>> OpenClockOfJob(const std::filesystem::path& job_directory);

}  // namespace perseus::virtual_gpu
