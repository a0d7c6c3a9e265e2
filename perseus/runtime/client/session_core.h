// What the training thread and the background thread of a session share. It lives as long as one of
// them needs it: a background thread that hangs in a driver may outlive its session.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/client/clock_table.h"
#include "perseus/runtime/client/handover.h"
#include "perseus/runtime/client/hot_path.h"
#include "perseus/runtime/client/live_sessions.h"
#include "perseus/runtime/client/recent_steps.h"
#include "perseus/runtime/client/ring.h"
#include "perseus/runtime/client/settings.h"
#include "perseus/runtime/client/stream_timer.h"
#include "perseus/runtime/client/warnings.h"

namespace perseus::client {

struct SessionCore {
  explicit SessionCore(Settings from);

  const Settings settings;
  // The clock of the GPU, for all times of a session. It is set before anything uses it.
  std::shared_ptr<Clock> clock = std::make_shared<RealClock>();
  // The UUID of the GPU; empty: unknown. It is set before anything uses it.
  std::string gpu;
  Warnings warnings;
  Ring<Event> events;
  Handover<ClockTable> tables;
  ClockRequester clock_requester;
  HotCounters counters;
  HotTrouble trouble;
  StreamTimer streams;
  RecentSteps recent_steps;

  // The number of the session's first step. It is set before the first step begins.
  std::int64_t first_step = 0;

  // When the background thread requests the clock for the next step, before the running instruction
  // ends. 0: never. Only for instructions that are not on a stream.
  std::atomic<Nanoseconds> return_at = 0;
  std::atomic<int> return_mhz = 0;

  // The last request with an answer of the agent. Set by the background thread.
  std::atomic<std::uint32_t> answered = 0;
  // Counted by the background thread.
  std::atomic<std::uint64_t> agent_losses = 0;
  std::atomic<std::uint64_t> clocks_limited = 0;
  std::atomic<std::uint64_t> clocks_refused = 0;
  std::atomic<std::uint64_t> changes_skipped = 0;

  // Turns the problems that the training thread found into warnings. For any thread, outside of the
  // hot path.
  void ReportTroubles();

  LiveSession& live() { return *live_; }

 private:
  std::unique_ptr<LiveSession, void (*)(LiveSession*)> live_;
};

}  // namespace perseus::client
