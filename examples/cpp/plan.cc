#include <perseus/planning/api/plan_iteration.h>

#include <cstdio>

int main() {
  const auto plan = perseus::PlanIteration({.profile = "profile.csv",
                                            .schedule = "1f1b",
                                            .microbatches = 96,
                                            .gpus_per_stage = 8,
                                            .blocking_power_w = 83.64},
                                           perseus::NoSlowdown());
  if (!plan) return std::printf("%s\n", plan.error().Message().c_str()), 1;
  std::printf("%.3f s, %.0f J, saves %.1f %%; no plan needs less than %.0f J\n", plan->time_s,
              plan->energy_j, 100 * plan->saving(), plan->lower_bound_j);
  return plan->Save("plan.json") ? 0 : 1;
}
