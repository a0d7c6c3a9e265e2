// Builds the records of steps from the events of the training thread, the readings of the energy
// counter and the answers of the agent. These arrive independently.
//
// Not thread safe: for the background thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "perseus/runtime/client/clock_requester.h"
#include "perseus/runtime/client/energy_meter.h"
#include "perseus/runtime/client/hot_path.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::client {

// When an instruction on a stream ran.
struct StreamTiming {
  enum class State {
    kPending,  // The instruction has not ended yet.
    kKnown,
    kLost,  // The times will never be known.
  };
  State state = State::kPending;
  Nanoseconds begin = 0;  // CLOCK_MONOTONIC.
  Nanoseconds end = 0;
};

class StepRecorder {
 public:
  // The times of a pair of events. Called for each pair in order, until its times are not pending.
  using StreamTimesOf = std::function<StreamTiming(int timing)>;

  // Add each kind in the order in which it happened. Before TakeFinished(), add first the events
  // and then the requests, so that no step is taken without its requests.
  void Add(const Event& event);
  void Add(const EnergyReading& reading);
  void Add(const ClockReading& reading);
  void Add(const PublishedClock& published);
  void Add(const protocol::ClockAnswer& answer);
  // Sets the current state of the GPU.
  void SetState(const device::Telemetry& telemetry);

  // The steps that are complete by `now`. A step waits a short time for an answer of the agent, and
  // without limit for the end of an instruction on a stream.
  std::vector<protocol::RanStep> TakeFinished(Nanoseconds now, const StreamTimesOf& stream_times);
  // Whether some steps were not taken yet.
  bool IsWaiting() const { return !steps_.empty(); }
  // The steps that ended, and that the log does not get because times on a stream are not known.
  std::int64_t UnknownSteps() const;
  // The end of the last step that was taken.
  Nanoseconds last_end() const { return last_end_; }

 private:
  // An instruction or a wait of a step.
  struct Part {
    int timing = -1;  // -1: none, or known already.
    bool is_wait = false;
    std::size_t index = 0;  // In `instructions` or `waits` of the step.
  };
  struct Pending {
    protocol::RanStep step;
    std::vector<Part> parts;
    std::size_t untimed = 0;    // The first part without known times.
    bool is_on_stream = false;  // Whether an instruction has times of a stream.
    bool is_lost = false;       // Whether times of an instruction will never be known.
    bool has_ended = false;
    bool is_wanted = true;  // Whether the step is whole, and the log gets it.
  };
  static bool ResolveTimes(Pending& pending, const StreamTimesOf& stream_times);
  bool IsAnswered(Nanoseconds until) const;
  void Complete(protocol::RanStep& step);

  std::deque<Pending> steps_;
  std::deque<EnergyReading> energy_;
  std::deque<ClockReading> reached_;
  struct Change {
    PublishedClock published;
    protocol::ClockAnswer answer;
  };
  std::deque<Change> changes_;
  Nanoseconds last_end_ = 0;
  std::int64_t lost_steps_ = 0;
  device::Telemetry telemetry_;
  // What has held the clock down since the last step was taken, and at the last look before that.
  device::ClockLimits limits_;
  bool is_limited_ = false;  // The same, by an answer of the agent, without the cause.
};

}  // namespace perseus::client
