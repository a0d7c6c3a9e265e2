// Published ways to choose the clocks of a pipeline, behind one interface. Benchmarks compare
// Perseus with them.
//
//   AllMax            Everything runs at maximum frequency: the default without a plan.
//   ZeusGlobal        All GPUs run at one frequency, which is swept (You et al., Zeus, NSDI '23,
//                     adapted to pipelines in Perseus, SOSP '24, section 6.1).
//   ZeusPerStage      Each stage has a frequency that balances the time of a forward over the
//                     stages. This time is swept.
//   EnvPipe           (Choi et al., ATC '23) The outer envelope runs at maximum frequency. The rest
//                     starts at the clock of least energy and is raised along the critical path
//                     (envpipe.cc).
//   PerseusPublished  Perseus as the planner of its authors computes it: options up to the least
//                     measured energy, times rounded down to a unit, energies from an exponential
//                     fit (published_planner.h). Uses a thousand of its schedules, up to T*, the
//                     time of least energy. With a straggler of T', it plans for min(T*, T').
//   Perseus           Our planner, as planning/recipe uses it. A comparison of these last two
//                     shows which part of a result comes from the idea, and which part from its
//                     implementation.
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
#include "perseus/planning/recipe/recipe.h"

namespace perseus::baselines {

// A plan that a policy offers.
struct OperatingPoint {
  std::string setting;       // In words, such as "1200 MHz" or "5 % slowdown".
  std::vector<int> options;  // By instruction of the planner's graph.
  plan::Evaluation evaluation;
};

struct PolicyPoints {
  // Fastest first. A slower point needs less energy than a faster one that waits until it ends.
  std::vector<OperatingPoint> points;
  std::string note;  // A problem in words. Empty if there was none.
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // Returns the plans that the policy offers. `times` (ascending) are the iteration times for which
  // it may plan, because a straggler makes the iteration that long. Some policies ignore these
  // times.
  virtual Result<PolicyPoints> Points(const plan::Planner& planner,
                                      std::span<const Nanoseconds> times) const = 0;
};

std::unique_ptr<Policy> MakeAllMax();
std::unique_ptr<Policy> MakeZeusGlobal();
std::unique_ptr<Policy> MakeZeusPerStage();
std::unique_ptr<Policy> MakeEnvPipe();
// Times are multiples of `unit`.
std::unique_ptr<Policy> MakePerseusPublished(Nanoseconds unit);
// Returns a policy that plans with these wishes. Their first target is for an iteration without a
// straggler.
std::unique_ptr<Policy> MakePerseus(recipe::Wishes wishes = {});

// All policies in the order above. `unit` is for PerseusPublished, and `wishes` are for Perseus.
std::vector<std::unique_ptr<Policy>> AllPolicies(Nanoseconds unit, recipe::Wishes wishes = {});

// Returns the point of least planner.EnergyUntil(time) among the points that end by `time`. If no
// point ends by `time`, returns the fastest point, which makes the iteration longer. Requires at
// least one point.
const OperatingPoint& ChooseFor(Nanoseconds time, std::span<const OperatingPoint> points,
                                const plan::Planner& planner);

// A point with its evaluation on the planner's graph and model.
OperatingPoint MakePoint(const plan::Planner& planner, std::string setting,
                         std::vector<int> options);

// Sorts the points by time. Drops a point if another point is faster and needs less energy for any
// length of the iteration.
std::vector<OperatingPoint> Undominated(const plan::Planner& planner,
                                        std::vector<OperatingPoint> points);

}  // namespace perseus::baselines
