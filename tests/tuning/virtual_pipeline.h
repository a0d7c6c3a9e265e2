// A job that trains on virtual GPUs (device/virtual_gpu.h) in a time of its own: a step a call, no
// process, no waiting. Its ranks follow orders and write logs as the client does:
//   - an instruction begins when its rank is free and its input is there; waiting GPUs spin;
//   - the next instruction's clock is asked for when the one before it ends, and is there at once;
//   - the energy counter is looked at every 10 ms, each rank's at its own moments;
//   - a step ends for all when the last rank is done.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "followed_orders.h"
#include "perseus/device/virtual_gpu.h"
#include "perseus/jobdir/rank_log.h"
#include "perseus/plan/plan_file.h"
#include "perseus/profile/profile.h"
#include "perseus/profiler/sweep_plan.h"
#include "perseus/trainer/rank_work.h"

namespace perseus {

struct VirtualPipelineSpec {
  double noise = 0.01;  // On what each run of an instruction takes, and on what it draws.
  Nanoseconds counter_period = 100'000'000;
  std::uint64_t seed = 1;
};

class VirtualPipeline {
 public:
  // `job` says the schedule, the model and the clocks of each rank, `truth` what they take and
  // cost.
  VirtualPipeline(const SweepJob& job, const Profile& truth, const VirtualPipelineSpec& spec,
                  std::filesystem::path job_directory);

  void RunStep();
  std::int64_t steps() const { return next_step_; }

 private:
  struct Rank {
    RankName name;
    std::vector<RankInstruction> work;
    VirtualGpu gpu;
    Nanoseconds next_look = 0;
    Nanoseconds last_look = 0;
    double looked_j = 0;  // What the counter showed last.
    int clock_mhz = 0;    // Asked for; 0: what the GPU has by itself.
    std::size_t next = 0;
    RanStep step;
  };
  using Arrivals = std::map<Tensor, Nanoseconds>;

  bool CanRun(const Rank& rank, const Arrivals& arrivals) const;
  void RunNext(Rank& rank, const Orders& orders, Arrivals& arrivals);
  int ClockOf(const Rank& rank, const RankInstruction& instruction, const Orders& orders);
  const PlanFile& PlanOf(const Orders& orders);
  static void AdvanceTo(Rank& rank, Nanoseconds until);
  void Append(const RankName& name, const RankRecord& record) const;

  std::filesystem::path job_directory_;
  FollowedOrders orders_;
  std::map<std::string, PlanFile> plans_;  // By the name that orders have for it.
  std::vector<Rank> ranks_;
  Nanoseconds now_ = 0;
  std::int64_t next_step_ = 0;
};

}  // namespace perseus
