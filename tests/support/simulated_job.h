// For tests: a job whose ranks write logs and follow assignments. Each call runs one step.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/support/followed_assignment.h"
#include "tests/support/temporary_directory.h"

namespace perseus {

class SimulatedJob {
 public:
  struct Cost {
    double time_s = 0.5;
    double energy_j = 100;  // For each rank.
  };
  explicit SimulatedJob(std::set<protocol::RankId> ranks) : ranks_(std::move(ranks)) {
    std::filesystem::create_directory(directory_ / "ranks");
    for (const protocol::RankId& rank : ranks_) {
      protocol::RankHeader header;
      header.name = rank;
      header.host = "n7";
      header.pid = 1;
      header.may_set_clocks = true;
      header.sm_clocks_mhz = {800, 1000};
      Announce(header);
    }
  }

  // Appends a new header to the rank's log.
  void Announce(const protocol::RankHeader& header) const {
    Append(header.name, protocol::FormatRecord(header));
  }

  const std::filesystem::path& directory() const { return directory_.path(); }
  const std::set<protocol::RankId>& ranks() const { return ranks_; }
  std::int64_t steps() const { return step_; }

  // A step's time and energy under an assignment, before noise.
  std::function<Cost(const protocol::Assignment&)> cost = [](const protocol::Assignment&) {
    return Cost();
  };
  double noise = 0.001;  // The relative noise of energy and time.
  double counter_period_s = 0.1;
  // Steps contain the instructions of this schedule. If the schedule is empty, steps have no
  // instructions.
  schedule::Schedule schedule;
  // Ranks that ignore assignments.
  std::set<protocol::RankId> ignoring;
  // The causes that hold all clocks down. An empty list: the ranks do not record causes. nullopt:
  // no clock is held down.
  std::optional<std::vector<std::string>> limited_by;

  void RunStep() {
    const protocol::Assignment& assignment = assignment_.At(step_);
    const Cost truth = cost(assignment);
    const double time_s = truth.time_s * (1 + noise * Normal(random_));
    const double power_w = truth.energy_j / time_s * (1 + noise * Normal(random_));
    for (const protocol::RankId& rank : ranks_) {
      protocol::RanStep step;
      step.step = step_;
      step.assignment_version = ignoring.contains(rank) ? 0 : assignment.version;
      step.on_plan = true;
      step.begin = ToNanoseconds(now_s_);
      step.end = ToNanoseconds(now_s_ + time_s);
      step.instructions = InstructionsOf(rank, ToNanoseconds(time_s));
      // The counters of all ranks change at the same moments, once a period.
      double tick_s = next_tick_s_;
      for (; tick_s < now_s_ + time_s; tick_s += counter_period_s) {
        const Nanoseconds at = ToNanoseconds(tick_s - now_s_);
        step.energy.push_back({at, at, energy_j_ + power_w * (tick_s - now_s_)});
      }
      step.is_limited = limited_by.has_value();
      step.limited_by = limited_by.value_or(std::vector<std::string>());
      Append(rank, protocol::FormatRecord(step));
    }
    energy_j_ += power_w * time_s;
    now_s_ += time_s;
    while (next_tick_s_ < now_s_) next_tick_s_ += counter_period_s;
    ++step_;
  }

 private:
  void Append(const protocol::RankId& rank, const std::string& text) const {
    std::ofstream(protocol::RankLogPath(directory(), rank), std::ios::app) << text;
  }
  // Returns instructions that run one after the other and take the same time.
  std::vector<protocol::RanInstruction> InstructionsOf(const protocol::RankId& rank,
                                                       Nanoseconds time) const {
    std::vector<protocol::RanInstruction> instructions;
    if (schedule.pp_ranks.empty()) return instructions;
    const auto& planned = schedule.pp_ranks[static_cast<std::size_t>(rank.pp_rank)];
    const Nanoseconds each = time / std::ssize(planned);
    for (const schedule::Instruction& instruction : planned) {
      const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(instruction.stage)];
      const Nanoseconds begin = each * std::ssize(instructions);
      instructions.push_back({instruction.kind, instruction.microbatch, chunk, begin, each, 1000});
    }
    return instructions;
  }

  std::set<protocol::RankId> ranks_;
  TemporaryDirectory directory_;
  FollowedAssignment assignment_{directory_.path()};
  std::mt19937_64 random_{7};
  std::int64_t step_ = 0;
  double now_s_ = 1;
  double next_tick_s_ = 1;
  double energy_j_ = 0;
};

}  // namespace perseus
