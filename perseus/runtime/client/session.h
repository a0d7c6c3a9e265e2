// The object behind perseus_session: the training thread's part, and the background thread.
#pragma once

#include <cstdint>
#include <memory>

#include "perseus/runtime/client/background_thread.h"
#include "perseus/runtime/client/hot_path.h"
#include "perseus/runtime/client/session_core.h"
#include "perseus/runtime/device/open_devices.h"

namespace perseus::client {

class Session {
 public:
  // Never fails. A warning says what does not work.
  static std::unique_ptr<Session> Open(Settings settings, device::OpenVirtual open_virtual);
  // Waits at most one second until everything is written.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Whether this is a forked child, in which every call does nothing.
  bool IsDead() const;
  Nanoseconds Now() const;

  void StepBegin();
  void StepEnd();
  void StepAbandon();
  // Requests the default clock, and waits until the agent has set it, at most one second.
  void ReleaseClock();
  void InstructionBegin(int kind, int microbatch, int chunk);
  void InstructionEnd();
  void InstructionBeginOn(int kind, int microbatch, int chunk, void* stream);
  void InstructionEndOn(void* stream);
  // Around a part of the running instruction in which the GPU waits for other ranks.
  void WaitBegin();
  void WaitEnd();

  // Follows this plan from the next step on. An empty path means no plan. Returns false if the file
  // has no plan for this rank. Any thread may call it.
  bool UsePlan(const std::filesystem::path& path);
  perseus_counters Counters() const;
  perseus_costs Costs() const;
  SessionCore& core() { return *core_; }

 private:
  explicit Session(std::shared_ptr<SessionCore> core);
  bool IsInstruction(int kind, int microbatch, int chunk);
  void RequestClock(int wanted_mhz);
  void RequestAfterStep(int wanted_mhz);
  void DropStreamInstruction();
  void DropWait();
  void LookForCuda();
  void StartBackgroundThread(BackgroundThreadSetup setup);
  void StartStreams(void* stream);
  // Starts a thread of the session, which handles no signals. Returns false, and warns, if no
  // thread can be started. `body` runs in it, and is destroyed before the thread ends.
  template <typename Body>
  bool StartThread(Body body);

  const std::uint32_t generation_;
  std::shared_ptr<SessionCore> core_;
  HotPath hot_;
  // How the running instruction is timed. kNone: it is not timed, or none runs.
  enum class Timing { kHost, kStream, kNone };
  Timing timing_ = Timing::kNone;
  int pair_ = StreamTimer::kNone;  // The begun pair, until it is in the record.
  void* stream_ = nullptr;         // The stream of the running instruction.
  bool is_waiting_ = false;
  Nanoseconds waits_since_ = 0;
  int wait_pair_ = StreamTimer::kNone;
  // Once a stream was used, the training thread may be ahead of the GPU. Then it requests no clock
  // of a plan itself.
  bool has_used_streams_ = false;
  // How many more instructions without a stream look for a CUDA context. Several, because training
  // may make its context in the first ones.
  int looks_for_cuda_ = 8;
};

}  // namespace perseus::client
