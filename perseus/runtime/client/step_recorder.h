// Puts together what a rank's log says of each step, from what the training thread, the energy
// counter and the agent tell, each in its own time.
//
// Not thread safe: the background thread's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/client/energy_meter.h"
#include "perseus/runtime/client/hot_path.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::client {

// When an instruction on a stream ran.
struct StreamTiming {
  enum class State {
    kPending,  // It did not end yet.
    kKnown,
    kLost,  // And will not be known.
  };
  State state = State::kPending;
  Nanoseconds begin = 0;  // CLOCK_MONOTONIC.
  Nanoseconds end = 0;
};

class StepRecorder {
 public:
  // The times of a pair of events. Asked for each pair in order, and no more once it is not
  // pending.
  using StreamTimesOf = std::function<StreamTiming(int timing)>;

  // In the order in which they happened, each kind by itself; before Finished(), first the
  // training thread's events and then the requests, so that a step's requests are there with it.
  void Add(const Event& event);
  void Add(const EnergyReading& reading);
  void Add(const PublishedClock& published);
  void Add(const protocol::ClockAnswer& answer);
  // As of now.
  void SetState(const device::Telemetry& telemetry);

  // The steps of which all is known by `now`, or will not be: an answer of the agent's is waited
  // for a little, the end of what a stream runs for ever.
  std::vector<protocol::RanStep> TakeFinished(Nanoseconds now, const StreamTimesOf& stream_times);
  // Whether there are steps that were not taken yet.
  bool IsWaiting() const { return !steps_.empty(); }
  // When the last step ended that was taken.
  Nanoseconds last_end() const { return last_end_; }

 private:
  struct Pending {
    protocol::RanStep step;
    std::vector<int> timings;  // [instruction]: -1 for none, or known already.
    std::size_t untimed = 0;   // The first of those that are not known.
    bool has_ended = false;
    bool is_wanted = true;  // For the log, and whole.
  };
  static bool ResolveTimes(Pending& pending, const StreamTimesOf& stream_times);
  bool IsAnswered(Nanoseconds until) const;
  void Complete(protocol::RanStep& step);

  std::deque<Pending> steps_;
  std::deque<EnergyReading> energy_;
  struct Change {
    PublishedClock published;
    protocol::ClockAnswer answer;
  };
  std::deque<Change> changes_;
  Nanoseconds last_end_ = 0;
  device::Telemetry telemetry_;
  bool is_limited_ = false;  // Since the last step that was taken, or by the last look before.
};

}  // namespace perseus::client
