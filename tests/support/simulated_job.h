// For tests: a job whose ranks write logs and follow orders, a step a call.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/jobdir/orders.h"
#include "perseus/jobdir/rank_log.h"

namespace perseus {

class SimulatedJob {
 public:
  struct Cost {
    double time_s = 0.5;
    double energy_j = 100;  // Of a rank.
  };
  explicit SimulatedJob(std::set<RankName> ranks) : ranks_(std::move(ranks)) {
    std::string name = (std::filesystem::temp_directory_path() / "perseus-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) directory_ = name;
    std::filesystem::create_directory(directory_ / "ranks");
    for (const RankName& rank : ranks_) {
      RankHeader header;
      header.name = rank;
      header.host = "n7";
      header.pid = 1;
      header.may_set_clocks = true;
      header.sm_clocks_mhz = {800, 1000};
      Append(rank, FormatRecord(header));
    }
  }
  ~SimulatedJob() { std::filesystem::remove_all(directory_); }
  SimulatedJob(const SimulatedJob&) = delete;
  SimulatedJob& operator=(const SimulatedJob&) = delete;

  const std::filesystem::path& directory() const { return directory_; }
  const std::set<RankName>& ranks() const { return ranks_; }
  std::int64_t steps() const { return step_; }

  // What a step takes under these orders; before the noise.
  std::function<Cost(const Orders&)> cost = [](const Orders&) { return Cost(); };
  double noise = 0.001;  // Of energy and time, relative.
  double counter_period_s = 0.1;
  // Ranks that take no notice of orders.
  std::set<RankName> deaf;

  void RunStep() {
    TakeOrders();
    const Cost truth = cost(orders_);
    const double time_s = truth.time_s * (1 + noise * Normal(random_));
    const double power_w = truth.energy_j / time_s * (1 + noise * Normal(random_));
    for (const RankName& rank : ranks_) {
      RanStep step;
      step.step = step_;
      step.version = deaf.contains(rank) ? 0 : orders_.version;
      step.on_plan = true;
      step.begin = ToNanoseconds(now_s_);
      step.end = ToNanoseconds(now_s_ + time_s);
      // The counter moves at whole periods; all ranks' alike.
      double tick_s = next_tick_s_;
      for (; tick_s < now_s_ + time_s; tick_s += counter_period_s) {
        const Nanoseconds at = ToNanoseconds(tick_s - now_s_);
        step.energy.push_back({at, at, energy_j_ + power_w * (tick_s - now_s_)});
      }
      Append(rank, FormatRecord(step));
    }
    energy_j_ += power_w * time_s;
    now_s_ += time_s;
    while (next_tick_s_ < now_s_) next_tick_s_ += counter_period_s;
    ++step_;
  }

 private:
  void Append(const RankName& rank, const std::string& text) const {
    std::ofstream(RankLogPath(directory_, rank), std::ios::app) << text;
  }
  void TakeOrders() {
    const auto read = ReadOrders(directory_);
    if (read && *read && (waiting_.empty() || waiting_.back().version < (*read)->version)) {
      waiting_.push_back(**read);
    }
    for (const Orders& orders : waiting_) {
      if (orders.from_step <= step_ && orders.version > orders_.version) orders_ = orders;
    }
    if (orders_.until_step && *orders_.until_step <= step_) {
      orders_ = Orders{.version = 0};
    }
  }

  std::set<RankName> ranks_;
  std::filesystem::path directory_;
  std::mt19937_64 random_{7};
  std::vector<Orders> waiting_;
  Orders orders_{.version = 0};
  std::int64_t step_ = 0;
  double now_s_ = 1;
  double next_tick_s_ = 1;
  double energy_j_ = 0;
};

}  // namespace perseus
