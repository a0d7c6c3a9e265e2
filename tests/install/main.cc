// A program outside this project that uses the installed libraries: it reads a profile, makes a
// plan step by step, and handles an error. (examples/cpp/plan.cc makes its plan in one call.)
#include <perseus/planning/plan/planner.h>
#include <perseus/planning/profile/profile.h>
#include <perseus/planning/schedule/instruction_graph.h>
#include <perseus/planning/schedule/schedule.h>

#include <cstdio>
#include <string_view>

namespace schedule = perseus::schedule;

int main() {
  constexpr std::string_view kProfile =
      "stage,instruction,frequency,time,energy\n"
      "0,forward,1410,0.010,4.0\n"
      "0,forward,1200,0.011,3.5\n"
      "0,backward,1410,0.020,8.0\n"
      "0,backward,1200,0.022,7.0\n"
      "1,forward,1410,0.012,4.8\n"
      "1,forward,1200,0.0132,4.2\n"
      "1,backward,1410,0.024,9.6\n"
      "1,backward,1200,0.0264,8.4\n";
  const auto fail = [](const perseus::Error& error) {
    std::fprintf(stderr, "%s\n", error.Message().c_str());
    return 1;
  };
  const auto profile = perseus::profile::ParseProfile(kProfile, "profile.csv");
  if (!profile) return fail(profile.error());
  const auto order = schedule::GenerateSchedule({.name = "1f1b", .pp_ranks = 2, .microbatches = 8});
  if (!order) return fail(order.error());
  const auto graph = schedule::BuildInstructionGraph(*order, *profile, {.blocking_power_w = 80});
  if (!graph) return fail(graph.error());
  const auto planner = perseus::plan::Planner::Create(*graph, {.blocking_power_w = 80});
  if (!planner) return fail(planner.error());
  const auto plan = planner->PlanFor(planner->baseline().time);
  if (!plan) return fail(plan.error());

  const bool no_slower = plan->evaluation.time <= planner->baseline().time;
  const bool saves = plan->evaluation.energy_j < planner->baseline().energy_j;
  const bool certified = plan->gap() >= 0;
  const bool typo_found =
      !perseus::profile::ParseProfile("stage,instructoin\n", "profile.csv").has_value();
  return no_slower && saves && certified && typo_found ? 0 : 1;
}
