// The background thread of a session. It does everything that takes time, allocates memory or makes
// system calls, in short turns many times a second: it keeps the lease, reads assignments, reads
// the energy counter, and writes the rank log.
//
// Not thread safe: once the thread runs, only this thread uses the object.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/client/assignment_watcher.h"
#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/client/energy_meter.h"
#include "perseus/runtime/client/live_sessions.h"
#include "perseus/runtime/client/rank_log_writer.h"
#include "perseus/runtime/client/session_core.h"
#include "perseus/runtime/client/step_recorder.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::client {

// The connection to the node's agent: gets the lease, and notices when the lease is gone.
class AgentLink {
 public:
  struct Leased;
  // Fails if no agent listens, if the agent refuses, or if another program answers. The error has
  // the cause and the remedy. Waits at most `timeout` for a reply. `live` lists the connection.
  static Result<Leased> Acquire(const std::filesystem::path& socket, const std::string& gpu,
                                const std::string& job, std::chrono::milliseconds timeout,
                                LiveSession& live);

  // Whether the agent closed the connection, or sent an unexpected message.
  bool IsLost() const;
  // Fails with kInput if the agent no longer knows the lease, and with kSystem if it does not
  // reply.
  Result<void> Renew();
  Result<void> DeclareSlowdown(double slowdown);

  // The descriptor of the channel's wake-ups. The publisher owns it.
  int wakeup() const { return wakeup_; }

 private:
  AgentLink(ListedDescriptor socket, std::string lease, int wakeup)
      : socket_(std::move(socket)), lease_(std::move(lease)), wakeup_(wakeup) {}
  Result<void> RequestDone(const protocol::Request& request);

  ListedDescriptor socket_;
  std::string lease_;
  int wakeup_ = -1;
};

struct AgentLink::Leased {
  AgentLink link;
  std::unique_ptr<Lease> lease;
};

// The longest time without a heartbeat before the agent ends the lease.
inline constexpr double kHeartbeatSeconds = 30;

struct BackgroundThreadSetup {
  std::shared_ptr<SessionCore> core;
  std::shared_ptr<Clock> clock;
  std::string gpu;  // UUID; empty: no GPU is known, so no lease is requested.
  std::unique_ptr<device::Device> device;  // Null: energy is not measured.
  // Finds the agent's socket, before each request of a lease. Empty: no lease is requested.
  std::function<Result<std::filesystem::path>()> find_agent;
};

class BackgroundThread {
 public:
  explicit BackgroundThread(BackgroundThreadSetup setup);
  // Releases the lease and the log if they are still held.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Call it before the thread runs. Requests a lease and begins the log. Takes at most 20 s.
  void Begin();
  // Runs one turn. Returns the time at which the next one is due.
  Nanoseconds Turn();
  // Runs the last turn: writes everything, and releases the lease and the log.
  void End();

 private:
  void TryLease(std::chrono::milliseconds timeout);
  Result<AgentLink::Leased> Acquire(std::chrono::milliseconds timeout);
  void GiveUp();
  std::int64_t NextStep() const;
  void EndLease();
  void LoseLease(const std::string& cause, const std::string& message);
  void CheckLease(Nanoseconds now);
  void RestIfIdle(Nanoseconds now);
  Nanoseconds ReturnClock(Nanoseconds now);
  void CollectAnswer();
  void CountSkipped(const Lease& lease);
  void LookForAssignment(Nanoseconds now);
  void OfferTables();
  void MeasureEnergy(Nanoseconds now);
  void WarnOfCounter();
  void WriteSteps(Nanoseconds now);
  void Write(const protocol::RankRecord& record);
  Result<void> WriteText(const std::string& text);
  void WriteHeader();
  void BeginLog();
  void CheckLog(Nanoseconds now);
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
  std::uint32_t answered_ = 0;  // The last request with a counted outcome.
  protocol::ClockOutcome answered_outcome_ = protocol::ClockOutcome::kNone;
  std::uint32_t postponed_ = 0;  // How many requests of the lease had waited at the last count.

  AssignmentWatcher assignment_;
  std::string reported_problem_;                    // The last problem with an assignment.
  std::deque<std::unique_ptr<ClockTable>> tables_;  // Offered once the training thread is ready.
  EnergyMeter meter_;
  Nanoseconds next_look_ = 0;
  StepRecorder recorder_;
  std::optional<RankLogWriter> log_;
  Nanoseconds next_log_check_ = 0;
  std::string log_header_;         // Each part of the log begins with this line.
  bool has_logged_lease_ = false;  // The log's header says that clocks may be set.
  Nanoseconds epoch_;              // Added to the clock's time, it gives the time since 1970.
};

}  // namespace perseus::client
