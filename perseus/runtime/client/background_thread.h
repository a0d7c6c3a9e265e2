// The thread beside training: whatever takes time, allocates or enters the kernel is done here, a
// little many times a second. It keeps the lease, follows the assignment, looks at the energy
// counter, and writes down what ran.
//
// Not thread safe: everything belongs to the background thread, once it runs.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/runtime/client/agent_link.h"
#include "perseus/runtime/client/assignment_watcher.h"
#include "perseus/runtime/client/energy_meter.h"
#include "perseus/runtime/client/rank_log_writer.h"
#include "perseus/runtime/client/session_core.h"
#include "perseus/runtime/client/step_recorder.h"

namespace perseus::client {

struct BackgroundThreadSetup {
  std::shared_ptr<SessionCore> core;
  std::shared_ptr<Clock> clock;
  std::string gpu;                         // UUID; empty: no GPU is known, so no lease is wanted.
  std::unique_ptr<device::Device> device;  // Null: no energy.
  // The agent's socket, each time that one is asked for a lease; empty: none ever is.
  std::function<Result<std::filesystem::path>()> find_agent;
};

class BackgroundThread {
 public:
  explicit BackgroundThread(BackgroundThreadSetup setup);
  // What is still held is given up, however it came to this.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Before the thread runs: asks for a lease, and begins the log. Takes at most 20 s.
  void Begin();
  // One round. When the next one is due.
  Nanoseconds Turn();
  // The last one: everything is given back and written.
  void End();

 private:
  void TryLease(std::chrono::milliseconds timeout);
  Result<AgentLink::Leased> Acquire(std::chrono::milliseconds timeout) const;
  void GiveUp();
  void LoseLease(const std::string& cause, const std::string& message);
  void CheckLease(Nanoseconds now);
  void RestIfIdle(Nanoseconds now);
  void CollectAnswer();
  void LookForAssignment(Nanoseconds now);
  void OfferTables();
  void MeasureEnergy(Nanoseconds now);
  void WriteSteps(Nanoseconds now);
  void Write(const protocol::RankRecord& record);
  Result<void> WriteText(const std::string& text);
  void WriteHeader();
  bool IsRecording() const { return log_.has_value() && core_.counters.is_recorded.load(); }

  SessionCore& core_;
  const std::shared_ptr<SessionCore> core_owner_;
  const std::shared_ptr<Clock> clock_;
  const std::string gpu_;
  const std::function<Result<std::filesystem::path>()> find_agent_;

  std::optional<AgentLink> link_;
  bool is_released_by_hand_ = false;
  Nanoseconds next_try_ = 0;
  Nanoseconds retry_after_ = 0;
  Nanoseconds next_beat_ = 0;
  Nanoseconds last_beat_ = 0;
  double declared_slowdown_ = 1;
  std::uint32_t answered_ = 0;  // The last request whose outcome was counted.
  protocol::ClockOutcome answered_outcome_ = protocol::ClockOutcome::kNone;

  AssignmentWatcher assignment_;
  std::string reported_problem_;  // With them.
  Nanoseconds next_assignment_ = 0;
  std::deque<std::unique_ptr<ClockTable>> tables_;  // To be offered when the training thread is
                                                    // ready for them.
  EnergyMeter meter_;
  Nanoseconds next_look_ = 0;
  StepRecorder recorder_;
  std::optional<RankLogWriter> log_;
  std::string log_header_;         // Its line: whatever begins, begins with it.
  bool has_logged_lease_ = false;  // The log's header says that clocks may be set.
  const Nanoseconds epoch_;        // What to add to CLOCK_MONOTONIC for time since 1970.
};

}  // namespace perseus::client
