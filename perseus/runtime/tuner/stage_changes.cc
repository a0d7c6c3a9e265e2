#include "perseus/runtime/tuner/stage_changes.h"

namespace perseus::tuner {

void StageChanges::Add(const protocol::RankId& rank, Nanoseconds epoch,
                       const protocol::RanStep& step,
                       const std::vector<profiler::Period>& changes) {
  const Nanoseconds begin = epoch + step.begin;
  auto& all = changes_[{rank.dp_rank, rank.pp_rank, step.step}];
  for (const profiler::Period& change : changes) {
    all.push_back({begin + change.begin, begin + change.end});
  }
}

std::vector<profiler::Period> StageChanges::Of(const protocol::RankId& rank, Nanoseconds epoch,
                                               const protocol::RanStep& step) const {
  const Nanoseconds begin = epoch + step.begin;
  std::vector<profiler::Period> periods;
  const auto found = changes_.find({rank.dp_rank, rank.pp_rank, step.step});
  if (found == changes_.end()) return periods;
  for (const profiler::Period& change : found->second) {
    periods.push_back({change.begin - begin, change.end - begin});
  }
  return periods;
}

}  // namespace perseus::tuner
