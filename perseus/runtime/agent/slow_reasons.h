// Why a GPU runs below its highest clock: by plan, or because of something that an operator has to
// look at. Health checks otherwise take a GPU that follows a plan for a faulty one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/runtime/agent/agent_report.h"

namespace perseus::agent {

enum class SlowBy {
  kPlan,            // The job that holds the GPU requested this clock.
  kPower,           // The power limit.
  kTemperature,     // The GPU is too hot.
  kPowerBrake,      // The board or the rack limits the power.
  kAnotherProgram,  // A clock setting that is not of the job.
  kUnknown,         // The driver gives another reason.
};
inline constexpr SlowBy kAllSlowBy[] = {SlowBy::kPlan,           SlowBy::kPower,
                                        SlowBy::kTemperature,    SlowBy::kPowerBrake,
                                        SlowBy::kAnotherProgram, SlowBy::kUnknown};
// "plan", "power", "temperature", "power_brake", "another_program", "unknown".
std::string_view NameOf(SlowBy reason);

// In the order of kAllSlowBy; several may hold at once. Empty for a GPU that is idle, at its
// highest clock, or not readable.
std::vector<SlowBy> WhySlow(const GpuReport& gpu);

// "plan, temperature". Empty for none.
std::string Describe(const std::vector<SlowBy>& reasons);

// What another program did to the clock, for operators. Empty if nothing.
std::string DescribeForeign(const GpuReport& gpu);

}  // namespace perseus::agent
