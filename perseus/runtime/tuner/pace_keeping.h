// Keeps the plans of a job at the pace of its slowest pipelines, after `tune` and until the
// training ends (pace_rule.h says when plans change).
//
//   rank logs -> time of instructions / time in the plan -> PaceRule
//             -> options of each pipeline, times its ratio -> PacedPlans -> assignment
//
// The plans come from the measurements of `tune` (JOBDIR/tuner.json): only the speed of each rank
// is estimated again, with one factor for all its clocks. If it differs between clocks (a clock
// that heat holds down), the next plans correct it.
//
// The plans of `tune` stay the lasting assignment. All others are temporary (assignment.h), and are
// renewed before they end. So if this coordinator dies, ranks return to the plans of `tune`, and no
// rank waits for one that is slow no longer. The job directory is only locked while an assignment
// is written. So other coordinators (`verify`) may interrupt at any time. The files of the latest
// two changes stay in the job directory, and older ones are deleted.
#pragma once

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/tuner/tuning.h"

namespace perseus::tuner {

struct KeptPace {
  int changes = 0;  // How often other plans were put in force.
};

// Returns when `should_end` returns true, or when all ranks have ended their training. Then the
// plans of `tune` are in force. Fails (kInput) if no plans of `tune` are in force, if they do not
// limit the time, or if another coordinator replaces them. Fails (kUnreachable) if `tune` found no
// difference between pipelines, or if other plans made steps longer: then the times of instructions
// contain waiting. Fails (kSystem) if ranks are missing or restart. `options` are those of Tune().
Result<KeptPace> KeepPace(const TuningOptions& options, Clock& clock);

}  // namespace perseus::tuner
