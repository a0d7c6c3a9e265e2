// Builds the graph of a recorded step (which event waits for which events), and replays it.
//
// Within a rank, events that ran one after another keep their order (OrderWithinRanks). Events that
// overlap, such as a send and a receive that were posted together, wait for the same events.
//
// Between ranks, a send and its receive begin together, when both sides are ready. All members of a
// collective also begin together. Each member waits for one synchronization node, the *meeting*. A
// meeting takes no time and waits for everything that its members wait for. So a collective of n
// ranks needs 2n edges instead of n*n. The recording does not show which part of a communication is
// waiting. But the last member that arrives does not wait:
//
//     pipeline 0   |==========|~~~~wait~~~~[transfer]      transfer = end - the latest start
//     pipeline 1   |========================[transfer]                of all members
//
// (Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", 2025.)
//
// The remaining time is not explained by a recorded event: kernel launches, data loading, Python.
// The *host delay* of an event is an estimate of this time from the other steps. For each other
// step, take the events of the same name on the same rank of all pipelines, and the least of their
// delays. The host delay is the median of these least delays. Why the least delay of all pipelines:
// a rank may wait for something that is not recorded, while the same rank of another pipeline does
// not. The first event of a name is treated separately. A trace of one step has no host delays.
//
// So the check of the replay is independent: the replayed time of a step uses nothing from this
// step but the durations of its events.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/replay/job_trace.h"

namespace perseus::replay {

// The events that ran one after another on a rank of a recorded step.
//
// An event comes after those events of its rank that had ended when it began. Clocks are not exact.
// So if two events overlap by at most half of the shorter one, the later one still comes after the
// earlier one. Computations of a rank never overlap. Of all earlier events, an event waits only for
// the last ones. This implies the order of all other pairs.
//
// The cost is O(n log n) for n events, if fewer than kMostConcurrentEvents run at the same time.
// More concurrent events are an error, because the graph of a step would be quadratic.
inline constexpr int kMostConcurrentEvents = 64;

// Whether `later` begins after `earlier` has ended, by the rule above. Both are events of one rank,
// and `earlier` comes first in the order of RecordedStep.
bool IsAfter(const JobEvent& earlier, const JobEvent& later);

// For each event of the step, returns the events of its rank that it comes directly after. Fails
// (kInput) if too many events of a rank run at the same time. The message names one of them.
Result<std::vector<std::vector<int>>> OrderWithinRanks(const RecordedStep& step);

// The graph of a step. Its nodes are the events of the step, in the order of RecordedStep, and then
// the meetings. An event waits for other events or for one meeting. A meeting waits for events.
struct StepGraph {
  const RecordedStep* step = nullptr;
  std::vector<int> order;  // Each node comes after all nodes that it waits for.
  std::vector<int>
      first_waited;         // Node i waits for waited[first_waited[i] ... first_waited[i + 1]).
  std::vector<int> waited;  // The nodes that a node waits for, in ascending order.
  // By event. For a communication, the transfer without waiting.
  std::vector<Nanoseconds> durations;
  // By event. The time from the end of the last event that it waits for (or from the start of the
  // step) to its own start.
  std::vector<Nanoseconds> host_delays;

  int events() const { return static_cast<int>(durations.size()); }
  int nodes() const { return static_cast<int>(order.size()); }
  bool is_meeting(int node) const { return node >= events(); }
  std::span<const int> waits_of(int node) const {
    const auto i = static_cast<std::size_t>(node);
    const auto first = static_cast<std::size_t>(first_waited[i]);
    return std::span(waited).subspan(first, static_cast<std::size_t>(first_waited[i + 1]) - first);
  }
};

struct TraceGraph {
  std::vector<StepGraph> steps;  // In the order of the trace. They point into it.
};

// Requires that `trace` outlives the result. Fails (kInput) in these cases: a send has no receive;
// a collective lacks a member; one side of a communication ended before the other side began;
// events wait for each other in a cycle. The message names the event.
Result<TraceGraph> BuildTraceGraph(const JobTrace& trace,
                                   Nanoseconds clock_tolerance = kMillisecond);

enum class HostDelays { kNone, kTypical };

struct Replay {
  Nanoseconds time = 0;           // The time of the step.
  std::vector<Nanoseconds> ends;  // By node. A meeting ends when its last member is ready.
};

// Replays the step with these durations of its events (by event).
Replay ReplayStep(const StepGraph& graph, std::span<const Nanoseconds> durations,
                  HostDelays delays = HostDelays::kTypical);

// The time of each pipeline if it waits for no other pipeline.
std::vector<Nanoseconds> ReplayPipelinesAlone(const StepGraph& graph,
                                              std::span<const Nanoseconds> durations);

}  // namespace perseus::replay
