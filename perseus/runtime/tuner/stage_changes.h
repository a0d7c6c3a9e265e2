// The clock changes of the GPUs that share the work of a stage (tensor parallel).
//
// These GPUs exchange results inside an instruction, so each of them waits for the slowest one.
// Their clocks do not change together: a driver sets the clocks of its GPUs one after the other.
// So an instruction runs at the new clock only after the last GPU of the stage has it, and the
// latency that counts is the greatest of the stage. Hardware facts have it, too: in a change of all
// GPUs of a node, `qualify` counts the slowest GPU.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "perseus/runtime/profiler/gpu_measurements.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::tuner {

class StageChanges {
 public:
  // Adds the periods of GpuMeasurements::FindChanges() for a step of the rank. `epoch` is
  // that of its header.
  void Add(const protocol::RankId& rank, Nanoseconds epoch, const protocol::RanStep& step,
           const std::vector<profiler::Period>& changes);
  // Returns the periods of all ranks of the same stage and pipeline in this step, for
  // GpuMeasurements::Add(). They are counted from the beginning of this rank's step.
  std::vector<profiler::Period> Of(const protocol::RankId& rank, Nanoseconds epoch,
                                   const protocol::RanStep& step) const;

 private:
  // In nanoseconds since 1970, by dp_rank, pp_rank and step.
  std::map<std::tuple<int, int, std::int64_t>, std::vector<profiler::Period>> changes_;
};

}  // namespace perseus::tuner
