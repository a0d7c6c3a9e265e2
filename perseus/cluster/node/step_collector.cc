#include "perseus/cluster/node/step_collector.h"

#include <algorithm>

namespace perseus::node {
namespace {

// How long a step that some ranks have ended waits for the other ranks. A network file system shows
// their records late.
constexpr Nanoseconds kStepCollectorTimeout = kSecond;

// When the last computation would have ended if the rank had not waited for other pipelines: within
// its instructions (FSDP), or before the optimizer (for the gradients of all).
Nanoseconds LastComputation(const protocol::RanStep& step) {
  Nanoseconds last = 0;
  Nanoseconds optimizer = 0;
  for (const protocol::RanInstruction& ran : step.instructions) {
    if (ran.kind == InstructionKind::kOptimizerStep) {
      optimizer += ran.duration;
    } else {
      last = std::max(last, ran.begin + ran.duration);
    }
  }
  for (const protocol::Wait& wait : step.waits) last -= wait.duration;
  return step.begin + last + optimizer;
}

}  // namespace

std::optional<double> StepCollector::PowerOf(const protocol::RankHeader& rank,
                                             const protocol::RanStep& step) {
  if (step.energy.empty()) return std::nullopt;
  const protocol::EnergySample& last = step.energy.back();
  const Sample now{rank.epoch + step.begin + last.after + (last.until - last.after) / 2,
                   last.energy_j};
  const auto [found, is_first] = last_samples_.try_emplace(rank.name, now);
  const Sample before = std::exchange(found->second, now);
  // The counter was reset, or the clock of the host was set back.
  if (is_first || now.at <= before.at || now.energy_j < before.energy_j) return std::nullopt;
  return (now.energy_j - before.energy_j) / ToSeconds(now.at - before.at);
}

void StepCollector::Add(const protocol::RankHeader& rank, const protocol::RanStep& step,
                        std::int64_t server_version, Nanoseconds now) {
  const std::optional<double> power_w = PowerOf(rank, step);
  Pipeline& pipeline = pipelines_[rank.name.dp_rank];
  pipeline.ranks.insert(rank.name);
  if (pipeline.reported && step.step <= pipeline.reported->first) return;
  const auto [found, is_first] = pipeline.steps.try_emplace(step.step);
  Pending& pending = found->second;
  const Nanoseconds begin = rank.epoch + step.begin;
  if (is_first) {
    pending.begin = begin;
    pending.version = server_version;
    pending.since = now;
  }
  if (!pending.ranks.insert(rank.name).second) return;
  pending.begin = std::min(pending.begin, begin);
  pending.busy = std::max(pending.busy, rank.epoch + LastComputation(step));
  pending.end = std::max(pending.end, rank.epoch + step.end);
  pending.version = std::min(pending.version, server_version);
  if (step.IsDisturbed()) ++pending.limited;
  if (step.LacksClocks()) ++pending.without_clocks;
  pending.power_w += power_w.value_or(0);
  pending.is_power_known = pending.is_power_known && power_w;
}

void StepCollector::Restart(const protocol::RankId& rank) {
  last_samples_.erase(rank);
  const auto found = pipelines_.find(rank.dp_rank);
  if (found == pipelines_.end()) return;
  Pipeline& pipeline = found->second;
  pipeline.ranks.erase(rank);
  pipeline.steps.clear();
  pipeline.reported.reset();
}

bool StepCollector::IsDue(const Pipeline& pipeline,
                          std::map<std::int64_t, Pending>::const_iterator step, Nanoseconds now) {
  // Ranks record their steps in order. After a later step is complete, no record of this step
  // follows.
  for (auto later = step; later != pipeline.steps.end(); ++later) {
    if (later->second.ranks == pipeline.ranks) return true;
  }
  return now - step->second.since >= kStepCollectorTimeout;
}

protocol::StepReport StepCollector::ReportOf(int number, const Pipeline& pipeline,
                                             std::int64_t step, const Pending& pending) {
  const bool follows = pipeline.reported && pipeline.reported->first == step - 1;
  const Nanoseconds from = follows ? pipeline.reported->second : pending.begin;
  protocol::StepReport report;
  report.step = step;
  report.dp_rank = number;
  report.time_s = ToSeconds(std::max<Nanoseconds>(pending.end - from, 0));
  report.busy_s = ToSeconds(std::max<Nanoseconds>(pending.busy - pending.begin, 0));
  if (pending.is_power_known) report.energy_j = pending.power_w * report.time_s;
  report.version = pending.version;
  report.ranks = static_cast<int>(pending.ranks.size());
  report.limited = pending.limited;
  report.without_clocks = pending.without_clocks;
  return report;
}

std::vector<protocol::StepReport> StepCollector::Take(Nanoseconds now) {
  std::vector<protocol::StepReport> reports;
  for (auto& [number, pipeline] : pipelines_) {
    while (!pipeline.steps.empty() && IsDue(pipeline, pipeline.steps.begin(), now)) {
      const auto first = pipeline.steps.begin();
      reports.push_back(ReportOf(number, pipeline, first->first, first->second));
      pipeline.reported = {first->first, first->second.end};
      // A rank whose record is missing is expected again after it records a step.
      pipeline.ranks = std::move(first->second.ranks);
      pipeline.steps.erase(first);
      for (const auto& [step, later] : pipeline.steps) {
        pipeline.ranks.insert(later.ranks.begin(), later.ranks.end());
      }
    }
  }
  return reports;
}

bool StepCollector::IsEmpty() const {
  return std::ranges::all_of(pipelines_,
                             [](const auto& entry) { return entry.second.steps.empty(); });
}

}  // namespace perseus::node
