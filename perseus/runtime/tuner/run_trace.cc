#include "perseus/runtime/tuner/run_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "perseus/planning/plan_file/trace_events.h"

namespace perseus::tuner {
namespace {

constexpr int kPlanProcess = 1'000'000;  // Sorts after all pipelines.

// Returns an argument of a slice, or an empty text if no clock is known.
std::string ClockArgument(int frequency_mhz) {
  return frequency_mhz > 0 ? fmt::format(R"("frequency_mhz": {}, )", frequency_mhz) : "";
}

int LaneOf(const protocol::RankId& name) { return name.pp_rank * 64 + name.tp_rank; }

std::string_view PlanOf(const protocol::RanStep& step) {
  if (!step.has_plan || step.LacksClocks()) return "none";
  return step.on_plan ? "followed" : "left";
}

std::string LaneName(const protocol::RankId& name) {
  return name.tp_rank == 0 ? fmt::format("pp_rank {}", name.pp_rank)
                           : fmt::format("pp_rank {} tp_rank {}", name.pp_rank, name.tp_rank);
}

class RunTraceWriter {
 public:
  // Times are counted from `origin`, in nanoseconds since 1970.
  explicit RunTraceWriter(Nanoseconds origin) : origin_(origin) {}

  void NameProcess(int process, std::string_view name) { events_.NameProcess(process, name); }
  void NameLane(int process, int lane, std::string_view name) {
    events_.NameLane(process, lane, name);
  }
  void AddStep(const protocol::RankId& name, const LoggedRank& rank,
               const protocol::RanStep& step) {
    const int process = name.dp_rank + 1;
    const Nanoseconds begin = step.begin + rank.header.epoch;
    for (const protocol::RanInstruction& ran : step.instructions) {
      events_.AddSlice(
          {.process = process,
           .lane = LaneOf(name),
           .name = plan_file::InstructionLabel(ran.kind, ran.microbatch),
           .kind = ran.kind,
           .start = begin + ran.begin - origin_,
           .duration = ran.duration},
          ClockArgument(ran.frequency_mhz) +
              fmt::format(
                  R"("chunk": {}, "microbatch": {}, "step": {}, "assignment": {}, "plan": "{}")",
                  ran.chunk, ran.microbatch, step.step, step.assignment_version, PlanOf(step)));
    }
    for (const protocol::ClockChange& change : step.clocks) {
      const std::string lane = LaneName(name);
      AddCounter(process, lane + " requested clock", begin + change.requested, "MHz",
                 change.frequency_mhz);
      if (change.applied != 0) {
        AddCounter(process, lane + " applied clock", begin + change.applied, "MHz",
                   change.frequency_mhz);
      }
    }
    AddPower(name, step, begin);
  }

  void AddPlan(int process, const plan_file::PlanFile& plan, Nanoseconds begin) {
    for (std::size_t rank = 0; rank < plan.pp_ranks.size(); ++rank) {
      for (const plan_file::PlannedInstruction& planned : plan.pp_ranks[rank].instructions) {
        events_.AddSlice({.process = process,
                          .lane = static_cast<int>(rank),
                          .name = plan_file::InstructionLabel(planned.kind, planned.microbatch),
                          .kind = planned.kind,
                          .start = begin + planned.start - origin_,
                          .duration = planned.duration},
                         ClockArgument(planned.frequency_mhz) +
                             fmt::format(R"("chunk": {}, "microbatch": {}, "energy_j": {})",
                                         planned.chunk, planned.microbatch, planned.energy_j));
      }
    }
  }

  std::string Finish() && { return std::move(events_).Finish(); }

 private:
  void AddCounter(int process, const std::string& name, Nanoseconds at, std::string_view unit,
                  double value) {
    events_.AddCounter(process, name, at - origin_, unit, fmt::format("{:.6g}", value));
  }
  // Adds the mean power between two new values of the counter.
  void AddPower(const protocol::RankId& name, const protocol::RanStep& step, Nanoseconds begin) {
    for (const protocol::EnergySample& sample : step.energy) {
      const Nanoseconds at = begin + (sample.after + sample.until) / 2;
      const auto last = last_energy_.find(name);
      // A smaller value begins a new count.
      if (last != last_energy_.end() && at > last->second.first &&
          sample.energy_j >= last->second.second) {
        AddCounter(name.dp_rank + 1, LaneName(name) + " power", last->second.first, "W",
                   (sample.energy_j - last->second.second) / ToSeconds(at - last->second.first));
      }
      last_energy_[name] = {at, sample.energy_j};
    }
  }

  Nanoseconds origin_;
  plan_file::TraceEvents events_;
  std::map<protocol::RankId, std::pair<Nanoseconds, double>> last_energy_;  // Time, energy.
};

bool Contains(const TraceRange& range, std::int64_t step) {
  return step >= range.first && step <= range.last;
}

}  // namespace

Result<std::string> FormatRunTrace(const JobLogs& logs, const TraceRange& range,
                                   const std::vector<plan_file::PlanFile>& plans) {
  // The start of each step on the rank that began it first.
  std::map<std::int64_t, Nanoseconds> begins;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = -1;
  for (const auto& [name, rank] : logs.ranks()) {
    for (const protocol::RanStep& step : rank.steps) {
      least = std::min(least, step.step);
      most = std::max(most, step.step);
      if (!Contains(range, step.step)) continue;
      const Nanoseconds begin = step.begin + rank.header.epoch;
      const auto [found, is_new] = begins.emplace(step.step, begin);
      if (!is_new) found->second = std::min(found->second, begin);
    }
  }
  if (begins.empty()) {
    return most < 0 ? Fail("no rank has recorded a step (let the job run with PERSEUS_JOB_DIR)")
                    : Fail("no rank has recorded a step from {} to {} (the logs have {} to {})",
                           range.first, range.last, least, most);
  }
  RunTraceWriter writer(begins.begin()->second);
  std::set<int> pipelines;
  for (const auto& [name, rank] : logs.ranks()) {
    if (pipelines.insert(name.dp_rank).second) {
      writer.NameProcess(name.dp_rank + 1, fmt::format("pipeline {}", name.dp_rank));
    }
    writer.NameLane(name.dp_rank + 1, LaneOf(name), LaneName(name));
    for (const protocol::RanStep& step : rank.steps) {
      if (Contains(range, step.step)) writer.AddStep(name, rank, step);
    }
  }
  int process = kPlanProcess;
  for (const plan_file::PlanFile& plan : plans) {
    writer.NameProcess(process, fmt::format("plan: {}", plan.target));
    for (std::size_t rank = 0; rank < plan.pp_ranks.size(); ++rank) {
      writer.NameLane(process, static_cast<int>(rank), plan.pp_ranks[rank].name);
    }
    for (const auto& [step, begin] : begins) writer.AddPlan(process, plan, begin);
    ++process;
  }
  return std::move(writer).Finish();
}

}  // namespace perseus::tuner
