// Do our plans cause their gap to the bound, or is the discrete optimum that far from the bound?
// Solves the same problem as a mixed-integer program that starts from our plan, or with `cold`
// without a start.
//
//   plan_milp PROFILE BLOCKING_POWER_W MICROBATCHES SLOWDOWN_PCT [SECONDS [cold]]
//
// The schedule is 1F1B. CBC uses one thread. With more than a few microbatches it does not finish.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/plan_program.h"
#include "perseus/base/file.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus {
namespace {

struct Task {
  std::string profile;
  double blocking_power_w = 0;
  int microbatches = 0;
  double slowdown_pct = 0;
  double seconds = 300;
  bool cold = false;
};

Result<plan::Planner> MakePlanner(const Task& task) {
  const Result<std::string> text = ReadFile(task.profile);
  if (!text) return Fail(text);
  const Result<profile::Profile> profile = profile::ParseProfile(*text, task.profile);
  if (!profile) return Fail(profile);
  const Result<schedule::Schedule> schedule =
      schedule::GenerateSchedule({.name = "1f1b",
                                  .pp_ranks = profile->stages(),
                                  .microbatches = task.microbatches,
                                  .chunks = 1});
  if (!schedule) return Fail(schedule);
  schedule::PipelineModel model;
  model.blocking_power_w = task.blocking_power_w;
  Result<schedule::InstructionGraph> graph =
      schedule::BuildInstructionGraph(*schedule, *profile, model);
  if (!graph) return Fail(graph);
  return plan::Planner::Create(std::move(*graph), {task.blocking_power_w, 0});
}

Result<void> Compare(const Task& task) {
  const Result<plan::Planner> planner = MakePlanner(task);
  if (!planner) return Fail(planner);
  const auto deadline = static_cast<Nanoseconds>(static_cast<double>(planner->baseline().time) *
                                                 (1 + task.slowdown_pct / 100));
  const Result<plan::Plan> plan = planner->PlanFor(deadline);
  if (!plan) return Fail(plan);
  fmt::print("relaxed bound {:.4f} J, our plan {:.4f} J (gap {:.4f} %)\n", plan->lower_bound_j,
             plan->evaluation.energy_j, 100 * plan->gap());
  std::fflush(stdout);

  const ProgramOptimum optimum =
      SolvePlanProgram(*planner, deadline,
                       {.seconds = task.seconds,
                        .report = ProgramLimits::Report::kProgress,
                        .start = task.cold ? std::vector<int>() : plan->options});
  fmt::print("CBC: {}, best bound {:.4f} J, best plan {:.4f} J\n",
             optimum.proved ? "optimal" : "out of time", optimum.lower_bound_j, optimum.energy_j);
  if (optimum.options.empty()) return {};
  const plan::Evaluation best =
      plan::Evaluator(planner->graph(), planner->model()).Evaluate(optimum.options);
  fmt::print("evaluated: {:.4f} J, {} ns to spare; our plan costs {:.4f} % more\n", best.energy_j,
             deadline - best.time, 100 * (plan->evaluation.energy_j / best.energy_j - 1));
  return {};
}

int Main(std::span<char*> arguments) {
  if (arguments.size() < 5) {
    fmt::print(
        stderr,
        "usage: plan_milp PROFILE BLOCKING_POWER_W MICROBATCHES SLOWDOWN_PCT [SECONDS [cold]]\n");
    return 2;
  }
  Task task{arguments[1], std::atof(arguments[2]), std::atoi(arguments[3]),
            std::atof(arguments[4])};
  if (arguments.size() > 5) task.seconds = std::atof(arguments[5]);
  task.cold = arguments.size() > 6 && std::string_view(arguments[6]) == "cold";
  if (const Result<void> compared = Compare(task); !compared) {
    fmt::print(stderr, "{}\n", compared.error().message);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace perseus

int main(int argc, char** argv) { return perseus::Main({argv, static_cast<std::size_t>(argc)}); }
