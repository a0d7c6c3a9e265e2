#include "perseus/runtime/tuner/conductor.h"

#include <fmt/core.h>

#include <algorithm>

namespace perseus::tuner {

Result<void> CheckMaySetClocks(const protocol::RankHeader& header) {
  if (header.may_set_clocks && !header.sm_clocks_mhz.empty()) return {};
  if (header.gpu.empty() && header.sm_clocks_mhz.empty()) {
    return Fail(
        "rank {} has no GPU that Perseus can find, so no clock can be measured there (run perseus "
        "doctor on {})",
        Name(header.name), header.host);
  }
  return Fail(
      "rank {} may not set the clock of its GPU, so no other clock can be measured there (run "
      "perseus agent on {}, or let the job start one: PERSEUS_AGENT=own)",
      Name(header.name), header.host);
}

Result<void> Conductor::AwaitRanks(const std::set<protocol::RankId>& expected) {
  PERSEUS_ASSIGN_OR_RETURN(
      ranks_, logs_.AwaitRanks(expected, options_.timeout, options_.should_end, clock_));
  return {};
}

Result<void> Conductor::AwaitSteps(int steps) { return AwaitStep(logs_.LastStep(ranks_) + steps); }

// The computation uses the fastest steps, because fast steps may follow the slow steps of a sweep.
std::int64_t Conductor::Ahead() {
  const double step_s = logs_.StepTime(ranks_).value_or(1);
  fastest_s_ = fastest_s_ > 0 ? std::min(fastest_s_, step_s) : step_s;
  return protocol::StepsAhead(options_.assignment_delay_s, fastest_s_);
}

Result<std::string> Conductor::AddPlan(const std::string& text, std::optional<int> dp_rank) const {
  const std::string pipeline = dp_rank ? fmt::format("-dp{}", *dp_rank) : "";
  return writer_.AddPlan(fmt::format("{}{}", writer_.version() + 1, pipeline), text);
}

Result<Conductor::Stretch> Conductor::RunWith(protocol::Assignment assignment, int steps,
                                              int spare_steps) {
  // The job continued to train while the assignment was chosen.
  PERSEUS_RETURN_IF_ERROR(logs_.ReadNew());
  const std::int64_t from = logs_.LastStep(ranks_) + 1 + Ahead();
  const std::int64_t last = from + steps;
  assignment.until_step = last + 1 + spare_steps;
  PERSEUS_ASSIGN_OR_RETURN(const auto version, writer_.Write(std::move(assignment), from));
  PERSEUS_RETURN_IF_ERROR(AwaitStep(last));
  const Stretch stretch{from, last, version};
  PERSEUS_RETURN_IF_ERROR(CheckFollowed(stretch.first(), stretch.last, version));
  return stretch;
}

Result<Conductor::LeftInForce> Conductor::LeaveInForce(protocol::Assignment assignment) {
  PERSEUS_ASSIGN_OR_RETURN(const auto version, writer_.Write(std::move(assignment), 0));
  PERSEUS_RETURN_IF_ERROR(logs_.ReadNew());
  const std::int64_t step = logs_.LastStep(ranks_) + 1 + Ahead();
  PERSEUS_RETURN_IF_ERROR(AwaitStep(step));
  PERSEUS_RETURN_IF_ERROR(CheckFollowed(step, step, version));
  // Ranks that read the assignment early have followed it since an earlier step.
  std::int64_t first = step;
  const auto follow = [&](std::int64_t number) {
    return std::ranges::all_of(ranks_, [&](const protocol::RankId& name) {
      const protocol::RanStep* ran = log_of(name).Find(number);
      return ran != nullptr && ran->assignment_version == version;
    });
  };
  while (first > 0 && follow(first - 1)) --first;
  return LeftInForce{version, first};
}

Result<void> Conductor::Restore() {
  if (!writer_.HasToRestore()) return {};
  PERSEUS_RETURN_IF_ERROR(writer_.Restore());
  return {};
}

Result<void> Conductor::CheckFollowed(std::int64_t from, std::int64_t to,
                                      std::int64_t version) const {
  for (const protocol::RankId& name : ranks_) {
    const LoggedRank& rank = log_of(name);
    const std::string remark =
        rank.remarks.empty() ? "" : fmt::format("; its last remark: {}", rank.remarks.back());
    std::int64_t missing = 0;
    for (std::int64_t number = from; number <= to; ++number) {
      const protocol::RanStep* step = rank.Find(number);
      if (step == nullptr) {
        // A few records may be missing.
        if (2 * ++missing <= to - from + 1) continue;
        return Fail("rank {} did not record most of steps {} to {}{}", Name(name), from, to,
                    remark);
      }
      if (step->assignment_version != version) {
        return Fail(
            "rank {} ran step {} with assignment {} instead of {} (if it reads assignments late, "
            "raise `assignment_delay`){}",
            Name(name), number, step->assignment_version, version, remark);
      }
      if (!step->on_plan) {
        return Fail(
            "rank {} ran step {} in another order than the plan (does the job have this "
            "schedule?){}",
            Name(name), number, remark);
      }
    }
  }
  return {};
}

}  // namespace perseus::tuner
