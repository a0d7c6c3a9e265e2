// Finds the computations of a pipeline in traces of torch.profiler, one file a rank.
//
// torch.distributed.pipelining (torch 2.10 and later) names each action of a schedule: "PP:2F0" is
// the forward of stage 2 for microbatch 0, "PP:2B0" its backward. torch.profiler records the name
// on the CPU, where it is the time of the launches, and on the GPU ("gpu_user_annotation"), from
// the first kernel to the last one of each stream. Perseus takes the time on the GPU, on the stream
// on which the actions take the most time: the others communicate.
//
// The files do not number pipelines, pp_ranks and steps. They follow from the stages: ranks with
// the same stages are pipelines, in the order of ranks, and the k-th time of an action is in step
// k.
//
// Alternative that we rejected: the sends and receives of the trace. The trace has only their
// launch and their kernel, which waits for the other side. Each computation waits for the one that
// makes its input instead (JobEvent::stage), and the time of a transfer is a delay before it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/replay/job_trace.h"
#include "perseus/simulation/replay/trace_events.h"

namespace perseus::replay {

struct StepEvent {
  JobEvent event;
  std::int64_t step = 0;
};

// The actions of a rank on its GPU, by start. In `event`, pp_rank, dp_rank and chunk are not known
// yet.
struct ProfiledRank {
  std::int64_t rank = 0;
  bool repeats_another = false;  // A rank of tensor parallelism that is not the first one.
  std::vector<int> stages;       // Ascending.
  std::vector<StepEvent> events;
};

// Reads one file.
class TorchProfilerFile {
 public:
  Result<void> Take(const TraceEvent& event);
  // Fails (kInput) for a trace without the names of actions, or without times of the GPU.
  // `other_files` is the number of files read before. It is the rank if the file has no rank.
  Result<ProfiledRank> Finish(const TraceHeader& header, std::int64_t other_files) &&;

 private:
  struct Action {
    JobEvent event;  // With the time of the file.
    std::pair<std::int64_t, std::int64_t> stream;
  };

  Result<void> TakeAction(const TraceEvent& event, std::string_view action);
  Result<Action> ActionOf(const TraceEvent& event) const;

  std::vector<Action> actions_;                                        // On the GPU.
  std::map<std::pair<std::int64_t, std::int64_t>, Nanoseconds> busy_;  // By stream.
  std::optional<std::int64_t> first_step_;
  bool has_actions_ = false;  // On the CPU or the GPU.
};

// Fills in pp_ranks, dp_ranks and chunks. Fails (kInput) if files of ranks are missing.
Result<std::vector<StepEvent>> PlaceProfiledRanks(std::vector<ProfiledRank> ranks);

}  // namespace perseus::replay
