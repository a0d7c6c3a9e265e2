#include "perseus/runtime/tuner/run_summary.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "perseus/base/statistics.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "perseus/runtime/tuner/rank_progress.h"

namespace perseus::tuner {
namespace {

// The sums of one rank.
class RankSums {
 public:
  void Add(const protocol::RankRecord& record) {
    if (const auto* header = std::get_if<protocol::RankHeader>(&record)) {
      if (!protocol::IsOfSameProcess(header_, *header)) *this = RankSums();
      header_ = *header;
    } else if (const auto* step = std::get_if<protocol::RanStep>(&record)) {
      AddStep(*step);
    }
  }

  const protocol::RankHeader& header() const { return header_; }
  std::int64_t steps() const { return steps_; }
  std::int64_t planned() const { return planned_; }
  std::int64_t off_plan() const { return off_plan_; }
  std::int64_t unset() const { return unset_; }
  // Returns the mean power times the time of all steps. The counters change every 100 ms. So the
  // counters alone lack a part of the first and the last step.
  double energy_j() const {
    const double mean_s =
        last_step_ == first_step_
            ? 0
            : ToSeconds(last_begin_ - first_begin_) / static_cast<double>(last_step_ - first_step_);
    const double all_j = power_w() * mean_s * static_cast<double>(steps_);
    return all_j > 0 ? all_j : energy_j_;
  }
  // Returns the median time from step to step, because the first steps compile and allocate. 0 if
  // there are fewer than 2 steps.
  double step_time_s() const { return times_s_.empty() ? 0 : Median(times_s_); }
  std::int64_t at_power_limit() const { return at_power_limit_; }
  // By clock: the number of readings at the power limit.
  const std::map<int, std::int64_t>& readings() const { return readings_; }
  const Disturbance& disturbance() const { return disturbance_; }
  double power_w() const {
    return last_sample_ > first_sample_ ? energy_j_ / ToSeconds(last_sample_ - first_sample_) : 0;
  }

 private:
  void AddStep(const protocol::RanStep& step) {
    if (steps_++ == 0) {
      first_step_ = step.step;
      first_begin_ = step.begin;
    } else if (step.step == last_step_ + 1) {
      times_s_.push_back(ToSeconds(step.begin - last_begin_));
    }
    last_step_ = step.step;
    last_begin_ = step.begin;
    planned_ += step.has_plan ? 1 : 0;
    off_plan_ += step.has_plan && !step.on_plan ? 1 : 0;
    unset_ += step.LacksClocks() ? 1 : 0;
    at_power_limit_ += step.is_limited && !step.IsDisturbed() ? 1 : 0;
    for (const protocol::ReachedClock& reading : step.reached) ++readings_[reading.frequency_mhz];
    disturbance_.Add(step);
    for (const protocol::EnergySample& sample : step.energy) {
      const Nanoseconds at = step.begin + (sample.after + sample.until) / 2;
      if (!counter_j_) first_sample_ = last_sample_ = at;
      const double window_j = sample.energy_j - counter_j_.value_or(sample.energy_j);
      if (window_j >= 0) {
        energy_j_ += window_j;
      } else {  // A new count begins, and the energy of this window is unknown.
        first_sample_ += at - last_sample_;
      }
      counter_j_ = sample.energy_j;
      last_sample_ = at;
    }
  }

  protocol::RankHeader header_;
  std::int64_t steps_ = 0;
  std::int64_t planned_ = 0;
  std::int64_t off_plan_ = 0;
  std::int64_t unset_ = 0;
  std::int64_t at_power_limit_ = 0;
  std::map<int, std::int64_t> readings_;
  Disturbance disturbance_;
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
  Nanoseconds first_begin_ = 0;
  Nanoseconds last_begin_ = 0;
  std::vector<double> times_s_;  // From each step to the next one.
  Nanoseconds first_sample_ = 0;
  Nanoseconds last_sample_ = 0;
  std::optional<double> counter_j_;
  double energy_j_ = 0;
};

// How long ranks without a pipeline wait for the slowest one.
class Waits {
 public:
  void Add(const protocol::RanStep& step) {
    const Nanoseconds worked = step.TimeOfWork();
    Step& known = steps_[step.step];
    ++known.ranks;
    known.sum_s += ToSeconds(worked);
    known.most_s = std::max(known.most_s, ToSeconds(worked));
    known.has_plan |= step.has_plan;
  }
  // Only steps that all ranks recorded count. Elsewhere, the slowest rank may be missing.
  std::optional<double> Median(int ranks, bool has_plan) const {
    std::vector<double> waits_s;
    for (const auto& [number, step] : steps_) {
      if (step.ranks != ranks || step.has_plan != has_plan || step.most_s == 0) continue;
      waits_s.push_back(step.most_s - step.sum_s / ranks);
    }
    if (waits_s.empty()) return std::nullopt;
    return perseus::Median(std::move(waits_s));
  }

 private:
  struct Step {
    int ranks = 0;
    bool has_plan = false;
    double sum_s = 0;
    double most_s = 0;
  };
  std::map<std::int64_t, Step> steps_;
};

Result<RankSums> SumUpLog(const std::filesystem::path& log, Waits& waits) {
  RankSums sums;
  protocol::RankLogReader reader(log);
  for (;;) {
    const auto records = reader.ReadNew();
    if (!records && records.error().kind != ErrorKind::kInput) return Fail(records);
    if (!records) continue;  // The next call continues after the wrong line.
    if (records->empty()) return sums;
    for (const protocol::RankRecord& record : *records) {
      sums.Add(record);
      if (const auto* step = std::get_if<protocol::RanStep>(&record)) waits.Add(*step);
    }
  }
}

// Counts the missing ranks. Headers say how many ranks each pipeline has, and how many GPUs each
// stage has. A program with its own hooks may leave these numbers out.
class RankCount {
 public:
  void Add(const protocol::RankHeader& header) {
    Pipeline& pipeline = pipelines_[{header.name.dp_rank, header.name.tp_rank}];
    ++pipeline.seen;
    pipeline.stated = std::max(pipeline.stated, header.pp_ranks);
  }
  int missing() const {
    int count = 0;
    for (const auto& [name, pipeline] : pipelines_) {
      count += std::max(0, pipeline.stated - pipeline.seen);
    }
    return count;
  }

 private:
  struct Pipeline {
    int seen = 0;
    int stated = 0;
  };
  std::map<std::pair<int, int>, Pipeline> pipelines_;
};

// Returns the median of values, each with its count. 0 if there are no values.
int MedianOf(const std::map<int, std::int64_t>& counts) {
  std::int64_t all = 0;
  for (const auto& [value, count] : counts) all += count;
  std::int64_t below = 0;
  for (const auto& [value, count] : counts) {
    below += count;
    if (2 * below >= all) return value;
  }
  return 0;
}

}  // namespace

Result<RunSummary> SumUpRun(const std::filesystem::path& job_directory,
                            std::filesystem::file_time_type since) {
  RunSummary summary;
  bool has_energy = true;
  double power_w = 0;
  int timed_ranks = 0;
  RankCount count;
  Waits waits;
  std::set<int> dp_ranks;
  std::map<int, std::int64_t> readings;
  PERSEUS_ASSIGN_OR_RETURN(const auto logs, protocol::FindRankLogs(job_directory));
  for (const auto& [name, path] : logs) {
    if (!HasChanged(path, since)) continue;
    PERSEUS_ASSIGN_OR_RETURN(const RankSums sums, SumUpLog(path, waits));
    if (sums.steps() == 0) continue;
    count.Add(sums.header());
    dp_ranks.insert(name.dp_rank);
    summary.fewest_steps =
        summary.ranks == 0 ? sums.steps() : std::min(summary.fewest_steps, sums.steps());
    ++summary.ranks;
    summary.steps = std::max(summary.steps, sums.steps());
    summary.step_time_s += sums.step_time_s();
    timed_ranks += sums.step_time_s() > 0 ? 1 : 0;
    summary.energy_j += sums.energy_j();
    power_w += sums.power_w();
    has_energy = has_energy && sums.power_w() > 0;
    summary.planned_steps += sums.planned();
    summary.off_plan_steps += sums.off_plan();
    summary.unset_steps += sums.unset();
    summary.steps_at_power_limit += sums.at_power_limit();
    for (const auto& [mhz, times] : sums.readings()) readings[mhz] += times;
    const std::vector<int>& clocks = sums.header().sm_clocks_mhz;
    if (!clocks.empty()) summary.highest_mhz = std::max(summary.highest_mhz, clocks.back());
    summary.disturbance.Add(sums.disturbance());
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto outside, protocol::FindRankFiles(job_directory, ".outside"));
  for (const auto& [name, path] : outside) summary.ranks_outside += HasChanged(path, since) ? 1 : 0;
  // If ranks share a dp_rank, they wait for each other in the middle of a step.
  if (summary.ranks > 1 && std::ssize(dp_ranks) == summary.ranks) {
    summary.waiting_s = waits.Median(summary.ranks, /*has_plan=*/false);
    summary.planned_waiting_s = waits.Median(summary.ranks, /*has_plan=*/true);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto progress, ReadProgress(job_directory, dp_ranks, since));
  summary.samples_per_step = progress.samples;
  summary.tokens_per_step = progress.tokens;
  summary.reached_mhz = MedianOf(readings);
  summary.missing_ranks = count.missing();
  if (timed_ranks > 0) summary.step_time_s /= timed_ranks;
  if (!has_energy) summary.energy_j = power_w = 0;
  summary.energy_per_step_j = power_w * summary.step_time_s;
  return summary;
}

}  // namespace perseus::tuner
