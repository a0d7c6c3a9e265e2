// Puts together what a rank's log says of each step, from what the training thread, the energy
// counter and the agent tell, each in its own time.
//
// Not thread safe: the keeper's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "perseus/client/clock_asker.h"
#include "perseus/client/energy_meter.h"
#include "perseus/client/hot_path.h"
#include "perseus/jobdir/rank_log.h"

namespace perseus {

// When an instruction on a stream ran.
struct StreamTimes {
  Nanoseconds begin = 0;  // CLOCK_MONOTONIC.
  Nanoseconds end = 0;
};

class StepRecorder {
 public:
  // The times of a pair of events; nothing as long as they are not known. Asked for each pair in
  // order, until they are.
  using StreamTimesOf = std::function<std::optional<StreamTimes>(int timing)>;

  // In the order in which they happened, each kind by itself; before Finished(), first the
  // training thread's events and then the requests, so that a step's requests are there with it.
  void Add(const Event& event);
  void Add(const EnergyReading& reading);
  void Add(const ClockAsk& ask);
  void Add(const ClockAnswer& answer);
  // As of now.
  void SetState(const Telemetry& telemetry);

  // The steps of which all is known by `now`, or will not be: an answer of the agent's is waited
  // for a little, the end of what a stream runs for ever.
  std::vector<RanStep> TakeFinished(Nanoseconds now, const StreamTimesOf& stream_times);

 private:
  struct Pending {
    RanStep step;
    std::vector<int> timings;  // [instruction]: -1 for none, or known already.
    std::size_t untimed = 0;   // The first of those that are not known.
    bool has_ended = false;
    bool is_wanted = true;  // For the log, and whole.
  };
  bool ResolveTimes(Pending& pending, const StreamTimesOf& stream_times) const;
  bool IsAnswered(Nanoseconds until) const;
  void Complete(RanStep& step);

  std::deque<Pending> steps_;
  std::deque<EnergyReading> energy_;
  struct Change {
    ClockAsk ask;
    ClockAnswer answer;
  };
  std::deque<Change> changes_;
  Telemetry telemetry_;
  bool is_limited_ = false;  // Since the last step that was taken.
};

}  // namespace perseus
