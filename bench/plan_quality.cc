// Measures how close plans are to their lower bound, and how long planning takes. Prints a row for
// every job and slowdown. A row has the profile, schedule, microbatches, slowdown, iteration time,
// energy, saving relative to maximum frequency, gap, and seconds of planning (on one core).
//
//   plan_quality [all | measured | examples | synthetic | SCHEDULE]
//   plan_quality switches [SEARCHES]
//
// measured   both profiles of ../shared (skipped if absent), with 12 to 96 microbatches
// examples   the profile of examples/, as if measured on an A100
// synthetic  every schedule with 24 microbatches, 1F1B with all; profiles without and with noise
// SCHEDULE   only this schedule of the synthetic jobs, such as zb-v
// switches   plans with few clock changes for both profiles of ../shared, with no slowdown: for
//            each limit of changes the saving, the most that any such plan can save, the gap, and
//            the changes of the busiest pp_rank; and the CPU time of all limits together. SEARCHES
//            is the effort of `perseus plan --max-switches auto --effort` (default: 1)
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measured_job.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule/schedule.h"
#include "tests/support/planning_jobs.h"

namespace perseus {
namespace {

constexpr int kMicrobatches[] = {12, 24, 48, 96};
constexpr int kFewMicrobatches[] = {12, 24, 96};
constexpr double kSlowdownsPercent[] = {0, 1, 2, 3, 5, 7.5, 10, 15, 20};
// The blocking power for profiles that have no blocking power.
constexpr double kBlockingPowerW = kSyntheticBlockingPowerW;

struct Job {
  std::string profile;
  std::string schedule;
  int microbatches = 0;
  double blocking_power_w = 0;
};

// Calls print(measured job, microbatches) for each job.
template <typename Print>
Result<void> ForMeasuredJobs(std::span<const int> microbatches, const Print& print) {
  for (const MeasuredJob& measured : kMeasuredJobs) {
    for (const int count : microbatches) PERSEUS_RETURN_IF_ERROR(print(measured, count));
  }
  return {};
}

struct Worst {
  double gap = 0;
  int rows = 0;
  int above_goal = 0;
};
constexpr double kGoal = 0.0015;

void PrintHead() {
  fmt::print("{:24} {:>24} {:>4} {:>6} {:>11} {:>12} {:>8} {:>8} {:>7}\n", "profile", "schedule",
             "mb", "slow %", "time s", "energy J", "saves %", "gap %", "plan s");
}

Result<void> PrintRows(const Job& job, schedule::InstructionGraph graph, Worst& worst) {
  const Result<plan::Planner> planner =
      plan::Planner::Create(std::move(graph), {job.blocking_power_w, 0});
  if (!planner) return Fail(planner);
  const plan::Evaluation& baseline = planner->baseline();
  for (const double slowdown : kSlowdownsPercent) {
    const auto deadline = static_cast<Nanoseconds>(
        std::floor(static_cast<double>(baseline.time) * (1 + slowdown / 100)));
    const auto before = std::chrono::steady_clock::now();
    const Result<plan::Plan> plan = planner->PlanFor(deadline);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    if (!plan) return Fail(plan);
    fmt::print("{:24} {:>24} {:4} {:6} {:11.6f} {:12.3f} {:8.3f} {:8.4f} {:7.2f}\n", job.profile,
               job.schedule, job.microbatches, slowdown, ToSeconds(plan->evaluation.time),
               plan->evaluation.energy_j, 100 * (1 - plan->evaluation.energy_j / baseline.energy_j),
               100 * plan->gap(), took.count());
    std::fflush(stdout);
    worst.gap = std::max(worst.gap, plan->gap());
    ++worst.rows;
    if (plan->gap() > kGoal) ++worst.above_goal;
  }
  return {};
}

Result<void> PrintMeasured(std::string_view, Worst& worst) {
  return ForMeasuredJobs(kMicrobatches, [&](const MeasuredJob& measured, int microbatches) {
    Result<schedule::InstructionGraph> graph = ReadIteration(measured, microbatches);
    if (!graph) return Result<void>(Fail(graph));
    const Job job{std::string(measured.name), "1f1b", microbatches, measured.blocking_power_w};
    return PrintRows(job, *std::move(graph), worst);
  });
}

Result<void> PrintExamples(std::string_view, Worst& worst) {
  const std::string name = "gpt3-like_a100_pp8";
  const std::string path = PERSEUS_SOURCE_DIR "/examples/" + name + ".csv";
  for (const int microbatches : kMicrobatches) {
    PERSEUS_ASSIGN_OR_RETURN(auto graph, ReadIterationOf(path, kBlockingPowerW, microbatches));
    const Job job{name, "1f1b", microbatches, kBlockingPowerW};
    PERSEUS_RETURN_IF_ERROR(PrintRows(job, std::move(graph), worst));
  }
  return {};
}

Result<void> PrintSynthetic(std::string_view only, Worst& worst) {
  for (const double noise : {0.0, 0.001}) {
    for (const std::string schedule : {"1f1b", "gpipe", "interleaved-1f1b", "early-recompute-1f1b",
                                       "zb-h1", "zb-v", "dualpipe-v"}) {
      if (!only.empty() && only != schedule) continue;
      for (const int microbatches : kMicrobatches) {
        if (schedule != "1f1b" && microbatches != 24) continue;
        const Job job{fmt::format("synthetic, noise {}", noise), schedule, microbatches,
                      kBlockingPowerW};
        PERSEUS_RETURN_IF_ERROR(PrintRows(job,
                                          MakeSyntheticJob({.schedule = schedule,
                                                            .stages = kMeasuredStages,
                                                            .microbatches = microbatches,
                                                            .noise = noise}),
                                          worst));
      }
    }
  }
  return {};
}

double CpuMilliseconds() {
  return 1e3 * static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

Result<void> PrintSwitchRows(const MeasuredJob& measured, int microbatches, int searches) {
  constexpr int kLimits[] = {0, 2, 3, 4, 6, 8, 12, 16};
  PERSEUS_ASSIGN_OR_RETURN(auto graph, ReadIteration(measured, microbatches));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner,
                           plan::Planner::Create(std::move(graph), {measured.blocking_power_w, 0}));
  const plan::Evaluation& baseline = planner.baseline();
  const auto saving_pct = [&](double energy_j) { return 100 * (1 - energy_j / baseline.energy_j); };
  PERSEUS_ASSIGN_OR_RETURN(const plan::Plan unlimited, planner.PlanFor(baseline.time));
  const double before_ms = CpuMilliseconds();
  PERSEUS_ASSIGN_OR_RETURN(const auto plans, few_switches::PlanFewSwitches(
                                                 planner, baseline.time, kLimits,
                                                 std::span(&unlimited, 1), {.searches = searches}));
  const double took_s = (CpuMilliseconds() - before_ms) / 1e3;
  const double most_pct = saving_pct(unlimited.evaluation.energy_j);
  for (const few_switches::BudgetPlan& limited : plans) {
    if (!limited.plan) return Fail("no plan with {} changes", limited.most_changes);
    const double saved_pct = saving_pct(limited.plan->evaluation.energy_j);
    fmt::print("{:20} {:4} {:>9} {:8.2f} {:10.2f} {:8.3f} {:12.1f} {:6}\n", measured.name,
               microbatches, limited.most_changes, saved_pct, saving_pct(limited.lower_bound_j),
               100 * limited.plan->gap(), 100 * saved_pct / most_pct,
               *std::max_element(limited.changes.begin(), limited.changes.end()));
  }
  fmt::print("{:20} {:4} {:>9} {:8.2f} {:10.2f} {:8.3f} {:12.1f}        {:.2f} s for all limits\n",
             measured.name, microbatches, "unlimited", most_pct,
             saving_pct(unlimited.lower_bound_j), 100 * unlimited.gap(), 100.0, took_s);
  std::fflush(stdout);
  return {};
}

Result<void> PrintSwitches(int searches) {
  fmt::print("{:20} {:>4} {:>9} {:>8} {:>10} {:>8} {:>12} {:>6}\n", "profile", "mb", "switches",
             "saves %", "at most %", "gap %", "kept", "used");
  return ForMeasuredJobs(kFewMicrobatches, [&](const MeasuredJob& measured, int microbatches) {
    return PrintSwitchRows(measured, microbatches, searches);
  });
}

int Main(std::span<char*> arguments) {
  const std::string_view what = arguments.size() > 1 ? arguments[1] : "all";
  if (what == "switches") {
    const auto printed = PrintSwitches(arguments.size() > 2 ? std::atoi(arguments[2]) : 1);
    if (!printed) {
      fmt::print(stderr, "{}\n", printed.error().Message());
      return 1;
    }
    return 0;
  }
  const auto names = schedule::ScheduleNames();
  const bool one_schedule = std::find(names.begin(), names.end(), what) != names.end();
  Worst worst;
  PrintHead();
  struct Part {
    std::string_view name;
    Result<void> (*print)(std::string_view schedule, Worst& worst);
  };
  for (const Part& part : {Part{"measured", PrintMeasured}, Part{"examples", PrintExamples},
                           Part{"synthetic", PrintSynthetic}}) {
    if (what != "all" && what != part.name && (!one_schedule || part.name != "synthetic")) continue;
    const std::string_view schedule = one_schedule ? what : std::string_view();
    if (const Result<void> printed = part.print(schedule, worst); !printed) {
      fmt::print(stderr, "{}\n", printed.error().Message());
      return 1;
    }
  }
  fmt::print("{} plans, largest gap {:.4f} %, {} above {} %\n", worst.rows, 100 * worst.gap,
             worst.above_goal, 100 * kGoal);
  return 0;
}

}  // namespace
}  // namespace perseus

int main(int argc, char** argv) { return perseus::Main({argv, static_cast<std::size_t>(argc)}); }
