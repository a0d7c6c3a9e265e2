// What perseus_open returns: the training thread's part, and the thread beside it.
#pragma once

#include <cstdint>
#include <memory>

#include "perseus/runtime/client/background_thread.h"
#include "perseus/runtime/client/hot_path.h"
#include "perseus/runtime/client/session_core.h"

namespace perseus::client {

class Session {
 public:
  // Never fails; what does not work is warned of.
  static std::unique_ptr<Session> Open(Settings settings);
  // Waits at most a second for what is left to be written.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // In a child that was forked: nothing is to be done.
  bool IsDead() const;

  void StepBegin();
  void StepEnd();
  void InstructionBegin(int kind, int microbatch, int chunk);
  void InstructionEnd();
  void InstructionBeginOn(int kind, int microbatch, int chunk, void* stream);
  void InstructionEndOn(void* stream);

  // From the next step on; empty for none. False if it is no plan for this rank.
  bool UsePlan(const std::filesystem::path& path);
  perseus_counters Counters() const;
  SessionCore& core() { return *core_; }

 private:
  explicit Session(std::shared_ptr<SessionCore> core);
  bool IsInstruction(int kind, int microbatch, int chunk);
  void RequestClock(int wanted_mhz);
  void RequestClockOn(void* stream, int wanted_mhz);
  void DropStreamInstruction();
  void StartBackgroundThread(BackgroundThreadSetup setup);

  const std::uint32_t generation_;
  std::shared_ptr<SessionCore> core_;
  HotPath hot_;
  // How the instruction that runs is timed; kNone: not at all, or none runs.
  enum class Timing { kHost, kStream, kNone };
  Timing timing_ = Timing::kNone;
  int pair_ = StreamTimer::kNone;  // Begun, and not handed over yet.
  // Ever: from then on the training thread may be ahead of the GPU, and asks for no clock of a
  // plan.
  bool has_used_streams_ = false;
};

}  // namespace perseus::client
