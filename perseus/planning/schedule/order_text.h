// A schedule in words, for frameworks that load no schedule file: what each pp_rank runs.
#pragma once

#include <string>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {

// A line for each pp_rank, with its warm-up and its order:
//
//   pp_rank 0: 5 forwards before its first backward; 5 F, 7 (B F), 5 B
//
// "7 (B F)" is a backward and a forward in turn, seven times. The letters are those of the schedule
// file (F, B, I, W, R); with several chunks, the stage is before them: "4 (0F 2F)". Microbatches
// are in ascending order for each stage and kind, or else they follow the letter.
std::string DescribeOrder(const Schedule& schedule);

}  // namespace perseus::schedule
