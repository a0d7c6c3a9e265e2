// A job of one or several pipelines that trains on virtual GPUs (perseus/simulation/virtual_gpu) in
// virtual time, without processes and without waiting. Each call runs one step. The job's ranks
// follow assignments and write logs as the client does:
//  - An instruction begins when its rank is free and its input has arrived. Waiting GPUs spin.
//  - The clock of the next instruction is requested when the previous instruction ends. The clock
//    takes effect at once.
//  - Each rank reads its energy counter every 10 ms, at its own moments. At the power limit, it
//    also reads its clock.
//  - A step ends for all ranks when the last rank has ended it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/sweep_plan.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "perseus/simulation/trainer/rank_work.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "tests/support/followed_assignment.h"

namespace perseus {

struct VirtualPipelineSpec {
  // The relative noise of the time and the power of each run of an instruction.
  double noise = 0.01;
  Nanoseconds counter_period = 100'000'000;
  double power_limit_w = 0;       // 0: no power limit.
  double power_limit_wander = 0;  // The wander of the clock at the power limit.
  std::uint64_t seed = 1;
};

class VirtualPipeline {
 public:
  // `job` has the schedule, the model and the clocks of each rank. `truth` has the time and energy
  // of the instructions.
  VirtualPipeline(const profiler::SweepJob& job, const profile::Profile& truth,
                  const VirtualPipelineSpec& spec, std::filesystem::path job_directory)
      : VirtualPipeline(job, std::vector{truth}, spec, std::move(job_directory)) {}
  // A pipeline for each of `truths`. In each step, all of them wait for the slowest one.
  VirtualPipeline(const profiler::SweepJob& job, const std::vector<profile::Profile>& truths,
                  const VirtualPipelineSpec& spec, std::filesystem::path job_directory);

  void RunStep();
  std::int64_t steps() const { return next_step_; }
  // Changes the power limit of all GPUs, as heat does.
  void SetPowerLimit(double power_limit_w);
  // Holds the clock of a GPU down, as heat does. nullopt: no longer.
  void Throttle(int dp_rank, int pp_rank, std::optional<int> clock_mhz);
  double TimeOfStep(std::int64_t step) const {
    return step_times_s_.at(static_cast<std::size_t>(step));
  }

 private:
  struct Rank {
    protocol::RankId name;
    std::vector<trainer::RankInstruction> work;
    virtual_gpu::VirtualGpu gpu;
    Nanoseconds next_read = 0;  // The time of the next read of the energy counter.
    Nanoseconds last_read = 0;
    double read_j = 0;               // The counter's last value.
    int clock_mhz = 0;               // The requested clock. 0: no clock is requested.
    bool is_at_power_limit = false;  // True after a reading at the power limit. It stays true.
    std::size_t next = 0;
    protocol::RanStep step;
  };
  using Arrivals = std::map<trainer::Tensor, Nanoseconds>;  // In one pipeline.

  bool CanRun(const Rank& rank, const Arrivals& arrivals) const;
  void RunNext(Rank& rank, const protocol::Assignment& assignment, Arrivals& arrivals);
  int ClockOf(const Rank& rank, const trainer::RankInstruction& instruction,
              const protocol::Assignment& assignment);
  const plan_file::PlanFile& ReadPlan(const std::string& path);
  static void AdvanceTo(Rank& rank, Nanoseconds until);
  void Append(const protocol::RankId& name, const protocol::RankRecord& record) const;

  std::filesystem::path job_directory_;
  FollowedAssignment assignment_;
  std::map<std::string, plan_file::PlanFile> plans_;  // By the file name in the assignment.
  std::vector<Rank> ranks_;
  Nanoseconds now_ = 0;
  std::int64_t next_step_ = 0;
  std::vector<double> step_times_s_;
};

}  // namespace perseus
