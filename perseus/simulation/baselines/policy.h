// Published ways to choose the clocks of a pipeline, behind one interface, to compare Perseus with.
//
//   AllMax            everything at maximum frequency: the default without a plan.
//   ZeusGlobal        one frequency for all GPUs, swept (You et al., Zeus, NSDI '23, adapted to
//   ZeusPerStage      pipelines in Perseus, SOSP '24, section 6.1); a frequency for each stage that
//                     balances the time of a forward over the stages, swept.
//   EnvPipe           (Choi et al., ATC '23) the outer envelope at maximum frequency, the rest at
//   the
//                     clock of least energy, then raised along the critical path (envpipe.cc).
//   PerseusPublished  Perseus as the planner of its authors computes it: options up to the least
//                     measured energy, times rounded down to a unit, energies by an exponential fit
//                     (published_planner.h; a thousand of its schedules), up to T*, the time of
//                     least energy. With a straggler of T', it plans for min(T*, T').
//   Perseus           our planner. The two entries separate the idea from its implementation.
//
// The same Evaluator (plan/evaluation.h) evaluates all of them on the same measured options.
// Thread safety: const methods may be called from several threads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::baselines {

// A plan that a policy offers.
struct OperatingPoint {
  std::string setting;       // In words: "1200 MHz", "5 % slowdown".
  std::vector<int> options;  // Per instruction of the planner's graph.
  plan::Evaluation evaluation;
};

struct PolicyPoints {
  std::vector<OperatingPoint> points;  // Fastest first; each takes less than those
                                       // before, the waiting for the slowest included.
  std::string note;                    // What went wrong, in words; empty if nothing did.
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // What it offers. Policies that plan for a time are asked for these (ascending): how long an
  // iteration lasts whatever this pipeline does, because a straggler does. The others offer what
  // they have.
  virtual Result<PolicyPoints> Points(const plan::Planner& planner,
                                      std::span<const Nanoseconds> times) const = 0;
};

std::unique_ptr<Policy> MakeAllMax();
std::unique_ptr<Policy> MakeZeusGlobal();
std::unique_ptr<Policy> MakeZeusPerStage();
std::unique_ptr<Policy> MakeEnvPipe();
// Times are multiples of `unit`.
std::unique_ptr<Policy> MakePerseusPublished(Nanoseconds unit);
std::unique_ptr<Policy> MakePerseus();

// All of them, in the order above; ours is the last. `unit` is of PerseusPublished.
std::vector<std::unique_ptr<Policy>> AllPolicies(Nanoseconds unit);

// The point of least planner.EnergyUntil(time) among those that are done by `time`; if there is
// none, the fastest, which then makes the iteration longer. Requires at least one point.
const OperatingPoint& ChooseFor(Nanoseconds time, std::span<const OperatingPoint> points,
                                const plan::Planner& planner);

// Evaluated on the planner's graph and model, as all points are.
OperatingPoint MakePoint(const plan::Planner& planner, std::string setting,
                         std::vector<int> options);

// Sorted by time; those are dropped that another point beats in time, and in energy however long
// the iteration lasts.
std::vector<OperatingPoint> Undominated(const plan::Planner& planner,
                                        std::vector<OperatingPoint> points);

}  // namespace perseus::baselines
