// For tests: a job whose ranks write logs and follow orders, a step a call.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/followed_orders.h"
#include "perseus/base/random.h"
#include "perseus/runtime/protocol/orders.h"
#include "perseus/runtime/protocol/rank_log.h"
#include "perseus/planning/schedule/schedule.h"
#include "tests/support/temporary_directory.h"

namespace perseus {

class SimulatedJob {
 public:
  struct Cost {
    double time_s = 0.5;
    double energy_j = 100;  // Of a rank.
  };
  explicit SimulatedJob(std::set<protocol::RankName> ranks) : ranks_(std::move(ranks)) {
    std::filesystem::create_directory(directory_ / "ranks");
    for (const protocol::RankName& rank : ranks_) {
      protocol::RankHeader header;
      header.name = rank;
      header.host = "n7";
      header.pid = 1;
      header.may_set_clocks = true;
      header.sm_clocks_mhz = {800, 1000};
      Announce(header);
    }
  }

  // What a rank says of itself from now on.
  void Announce(const protocol::RankHeader& header) const { Append(header.name, protocol::FormatRecord(header)); }

  const std::filesystem::path& directory() const { return directory_.path(); }
  const std::set<protocol::RankName>& ranks() const { return ranks_; }
  std::int64_t steps() const { return step_; }

  // What a step takes under these orders; before the noise.
  std::function<Cost(const protocol::Orders&)> cost = [](const protocol::Orders&) { return Cost(); };
  double noise = 0.001;  // Of energy and time, relative.
  double counter_period_s = 0.1;
  schedule::Schedule schedule;  // Of which steps hold the instructions; none: they hold none.
  // Ranks that take no notice of orders.
  std::set<protocol::RankName> deaf;

  void RunStep() {
    const protocol::Orders& orders = orders_.At(step_);
    const Cost truth = cost(orders);
    const double time_s = truth.time_s * (1 + noise * Normal(random_));
    const double power_w = truth.energy_j / time_s * (1 + noise * Normal(random_));
    for (const protocol::RankName& rank : ranks_) {
      protocol::RanStep step;
      step.step = step_;
      step.version = deaf.contains(rank) ? 0 : orders.version;
      step.on_plan = true;
      step.begin = ToNanoseconds(now_s_);
      step.end = ToNanoseconds(now_s_ + time_s);
      step.instructions = InstructionsOf(rank, ToNanoseconds(time_s));
      // The counter moves at whole periods; all ranks' alike.
      double tick_s = next_tick_s_;
      for (; tick_s < now_s_ + time_s; tick_s += counter_period_s) {
        const Nanoseconds at = ToNanoseconds(tick_s - now_s_);
        step.energy.push_back({at, at, energy_j_ + power_w * (tick_s - now_s_)});
      }
      Append(rank, protocol::FormatRecord(step));
    }
    energy_j_ += power_w * time_s;
    now_s_ += time_s;
    while (next_tick_s_ < now_s_) next_tick_s_ += counter_period_s;
    ++step_;
  }

 private:
  void Append(const protocol::RankName& rank, const std::string& text) const {
    std::ofstream(protocol::RankLogPath(directory(), rank), std::ios::app) << text;
  }
  // One after the other, all of one length.
  std::vector<protocol::RanInstruction> InstructionsOf(const protocol::RankName& rank, Nanoseconds time) const {
    std::vector<protocol::RanInstruction> instructions;
    if (schedule.ranks.empty()) return instructions;
    const auto& actions = schedule.ranks[static_cast<std::size_t>(rank.rank)];
    const Nanoseconds each = time / std::ssize(actions);
    for (const schedule::Action& action : actions) {
      const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(action.stage)];
      const Nanoseconds begin = each * std::ssize(instructions);
      instructions.push_back({action.kind, action.microbatch, chunk, begin, each, 1000});
    }
    return instructions;
  }

  std::set<protocol::RankName> ranks_;
  TemporaryDirectory directory_;
  FollowedOrders orders_{directory_.path()};
  std::mt19937_64 random_{7};
  std::int64_t step_ = 0;
  double now_s_ = 1;
  double next_tick_s_ = 1;
  double energy_j_ = 0;
};

}  // namespace perseus
