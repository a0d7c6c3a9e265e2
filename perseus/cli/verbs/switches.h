// Computes how often the clock of one GPU changes. A plan has only the total number of switches of
// all pp_ranks, which says little about one GPU.
#pragma once

#include <fmt/core.h>

#include <string>

#include "perseus/planning/plan/evaluation.h"

namespace perseus::cli {

// Returns the mean over the pp_ranks, in one iteration. All GPUs of a pp_rank change their clocks
// together.
inline double SwitchesPerGpu(const plan::Evaluation& evaluation) {
  return static_cast<double>(evaluation.switches) /
         static_cast<double>(evaluation.pp_rank_switches.size());
}

inline double SwitchesPerGpuAndSecond(const plan::Evaluation& evaluation) {
  return SwitchesPerGpu(evaluation) / ToSeconds(evaluation.time);
}

// Explains the column "switches" of tables.
inline constexpr const char* kSwitchesNote =
    "switches: clock changes in an iteration, the mean over the GPUs\n";

inline std::string FormatSwitches(double switches) { return fmt::format("{:.1f}", switches); }

}  // namespace perseus::cli
