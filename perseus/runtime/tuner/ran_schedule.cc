#include "perseus/runtime/tuner/ran_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::tuner {
namespace {

std::string Describe(const MatchedInstruction& instruction, const schedule::Schedule& schedule) {
  const bool has_chunks = schedule.stages() > static_cast<int>(schedule.pp_ranks.size());
  return fmt::format("{} of microbatch {}{}", Name(instruction.kind), instruction.microbatch,
                     has_chunks ? fmt::format(" on chunk {}", instruction.chunk) : "");
}

std::vector<MatchedInstruction> PlannedOf(const schedule::Schedule& schedule, int rank) {
  std::vector<MatchedInstruction> matched;
  for (const schedule::Instruction& instruction :
       schedule.pp_ranks[static_cast<std::size_t>(rank)]) {
    if (!IsComputation(instruction.kind)) continue;
    const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(instruction.stage)];
    matched.push_back({instruction.kind, instruction.microbatch, chunk});
  }
  return matched;
}

std::size_t MicrobatchesOf(const std::vector<MatchedInstruction>& instructions) {
  std::set<int> microbatches;
  for (const MatchedInstruction& instruction : instructions)
    microbatches.insert(instruction.microbatch);
  return microbatches.size();
}

using Computations = std::vector<MatchedInstruction>;

constexpr Nanoseconds kScheduleLookEvery = 100 * kMillisecond;
constexpr std::int64_t kMostStepsWaited = 64;
constexpr std::size_t kMostMissingNamed = 4;

// One step, as all ranks ran it.
struct JointStep {
  std::int64_t step = 0;
  std::vector<const Computations*> order;  // By pp_rank.
  // The ranks that ran different orders. Empty: all ranks ran the same order.
  std::string disagreement;

  bool IsSame(const JointStep& other) const {
    return disagreement.empty() && other.disagreement.empty() && order == other.order;
  }
};

bool HasBackward(const JointStep& step) {
  return std::ranges::all_of(step.order, [](const Computations* computations) {
    return std::ranges::any_of(*computations, [](const MatchedInstruction& one) {
      return one.kind == InstructionKind::kBackward ||
             one.kind == InstructionKind::kBackwardInput ||
             one.kind == InstructionKind::kBackwardWeight;
    });
  });
}

std::size_t CountMicrobatches(const JointStep& step) {
  std::set<int> microbatches;
  for (const MatchedInstruction& one : *step.order.front()) microbatches.insert(one.microbatch);
  return microbatches.size();
}

class ScheduleFinder {
 public:
  ScheduleFinder(const JobLogs& logs, const std::set<protocol::RankId>& ranks, std::string where)
      : logs_(logs), ranks_(ranks), where_(std::move(where)) {}

  Result<RanSchedule> Find() {
    PERSEUS_RETURN_IF_ERROR(FindShape());
    PERSEUS_RETURN_IF_ERROR(CheckComplete());
    JoinSteps();
    PERSEUS_ASSIGN_OR_RETURN(const auto newest, ChooseNewest());
    PERSEUS_RETURN_IF_ERROR(MakeSchedule(steps_[newest]));
    Count(newest);
    return std::move(found_);
  }

 private:
  const LoggedRank& Log(const protocol::RankId& name) const { return logs_.ranks().at(name); }

  // Finds the numbers of pipelines, of their ranks, and of the GPUs of a stage.
  Result<void> FindShape() {
    if (ranks_.empty()) {
      return Fail(
          "{} has no rank log with steps (let the job train with this directory as "
          "PERSEUS_JOB_DIR, for example with perseus run)",
          where_);
    }
    std::optional<protocol::RankId> says;
    for (const protocol::RankId& name : ranks_) {
      found_.pipelines = std::max(found_.pipelines, name.dp_rank + 1);
      found_.gpus_per_stage = std::max(found_.gpus_per_stage, name.tp_rank + 1);
      pp_ranks_ = std::max(pp_ranks_, name.pp_rank + 1);
      const int said = Log(name).header.pp_ranks;
      if (said == 0) continue;
      if (says && Log(*says).header.pp_ranks != said) {
        return Fail(
            "{}: rank {} belongs to a pipeline of {} ranks, but rank {} to one of {} (are logs of "
            "an earlier run in this directory? Use a new one)",
            where_, Name(*says), Log(*says).header.pp_ranks, Name(name), said);
      }
      says = name;
    }
    if (says && Log(*says).header.pp_ranks < pp_ranks_) {
      return Fail(
          "{}: pipelines have {} ranks by the log of rank {}, but there is a log of pp_rank {} "
          "(are logs of an earlier run in this directory? Use a new one)",
          where_, Log(*says).header.pp_ranks, Name(*says), pp_ranks_ - 1);
    }
    if (says) pp_ranks_ = Log(*says).header.pp_ranks;
    return {};
  }

  Result<void> CheckComplete() const {
    const std::size_t expected = static_cast<std::size_t>(found_.pipelines) *
                                 static_cast<std::size_t>(pp_ranks_) *
                                 static_cast<std::size_t>(found_.gpus_per_stage);
    if (expected == ranks_.size()) return {};
    std::string missing;
    std::size_t named = 0;
    for (const protocol::RankId& name :
         RanksOf(found_.pipelines, pp_ranks_, found_.gpus_per_stage)) {
      if (ranks_.contains(name) || ++named > kMostMissingNamed) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", Name(name));
    }
    if (named > kMostMissingNamed)
      missing += fmt::format(" and {} more", named - kMostMissingNamed);
    return Fail(
        "{}: no steps of {} are recorded, of {} ranks (does every rank use this directory, on a "
        "file system that all nodes share, and does each have its own dp_rank, pp_rank and "
        "tp_rank?)",
        where_, missing, expected);
  }

  const Computations* Intern(Computations computations) {
    return &*orders_.insert(std::move(computations)).first;
  }

  // Finds the steps that all ranks have recorded.
  void JoinSteps() {
    for (const protocol::RanStep& step : Log(*ranks_.begin()).steps) {
      JointStep joint{.step = step.step, .order = {}, .disagreement = {}};
      joint.order.resize(static_cast<std::size_t>(pp_ranks_));
      const bool is_common = std::ranges::all_of(ranks_, [&](const protocol::RankId& name) {
        const protocol::RanStep* ran = Log(name).Find(step.step);
        if (ran != nullptr) Join(name, *ran, joint);
        return ran != nullptr;
      });
      if (is_common) {
        steps_.push_back(std::move(joint));
      } else {
        found_.others["not recorded by all ranks"].push_back(step.step);
      }
    }
  }

  void Join(const protocol::RankId& name, const protocol::RanStep& ran, JointStep& joint) {
    const Computations* order = Intern(ComputationsOf(ran));
    const Computations*& known = joint.order[static_cast<std::size_t>(name.pp_rank)];
    if (known == nullptr) known = order;
    if (known == order || !joint.disagreement.empty()) return;
    joint.disagreement = fmt::format("ranks {} and {} ran different orders",
                                     Name(protocol::RankId{0, name.pp_rank, 0}), Name(name));
  }

  // Returns the last step of the newest order that ran in enough consecutive steps.
  Result<std::size_t> ChooseNewest() const {
    int consecutive = 0;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      const bool goes_on = consecutive > 0 && steps_[i].IsSame(steps_[i + 1]);
      consecutive = goes_on ? consecutive + 1 : 1;
      if (consecutive >= kStepsOfSchedule && HasBackward(steps_[i]))
        return i + kStepsOfSchedule - 1;
    }
    return WhyNone();
  }

  tl::unexpected<Error> WhyNone() const {
    if (!steps_.empty() && !steps_.back().disagreement.empty()) {
      return Fail(
          "{}: {} in step {}, but a job has one plan for all (use a job directory for each kind of "
          "pipeline)",
          where_, steps_.back().disagreement, steps_.back().step);
    }
    if (!steps_.empty() && steps_.back().order.front()->empty()) {
      return Fail(
          "{}: step {} is recorded without an instruction (does the training code report forward "
          "and backward to the client library? See perseus.attach and docs/frameworks.md)",
          where_, steps_.back().step);
    }
    return Fail(
        "{}: no order of instructions ran in {} consecutive steps of all ranks; {} steps of all "
        "ranks are recorded (let the job train longer)",
        where_, kStepsOfSchedule, steps_.size());
  }

  // Returns the stage of each chunk of a pp_rank.
  Result<std::vector<int>> StagesOf(int pp_rank, const Computations& order) const {
    int chunks = 0;
    for (const MatchedInstruction& one : order) chunks = std::max(chunks, one.chunk + 1);
    const protocol::RankId name{0, pp_rank, 0};
    std::vector<int> stages = Log(name).header.stages;
    for (const protocol::RankId& other : ranks_) {
      if (other.pp_rank != pp_rank || Log(other).header.stages == stages) continue;
      return Fail("{}: ranks {} and {} name different stages for the same pp_rank (name the same)",
                  where_, Name(name), Name(other));
    }
    if (stages.empty()) {
      for (int chunk = 0; chunk < chunks; ++chunk) stages.push_back(chunk * pp_ranks_ + pp_rank);
    }
    if (static_cast<int>(stages.size()) == chunks) return stages;
    return Fail(
        "{}: rank {} names {} stages, but its instructions have {} chunks (give perseus_options "
        "one stage for each chunk)",
        where_, Name(name), stages.size(), chunks);
  }

  Result<void> PlaceStages(std::span<const std::vector<int>> stages_of_rank) {
    std::map<int, std::pair<int, int>> places;  // The pp_rank and chunk of each stage.
    for (int rank = 0; rank < pp_ranks_; ++rank) {
      int chunk = 0;
      for (const int stage : stages_of_rank[static_cast<std::size_t>(rank)]) {
        const auto [place, is_new] = places.emplace(stage, std::pair(rank, chunk++));
        if (is_new) continue;
        return Fail(
            "{}: stage {} is on pp_ranks {} and {} (name the stages of each rank: perseus_options "
            "has `stages`)",
            where_, stage, place->second.first, rank);
      }
    }
    schedule::Schedule& schedule = found_.schedule;
    for (const auto& [stage, place] : places) {
      if (stage != schedule.stages()) {
        return Fail(
            "{}: stage {} ran, but stage {} did not (name the stages of each rank: perseus_options "
            "has `stages`)",
            where_, stage, schedule.stages());
      }
      schedule.pp_rank_of_stage.push_back(place.first);
      schedule.chunk_of_stage.push_back(place.second);
    }
    return {};
  }

  Result<void> MakeSchedule(const JointStep& step) {
    schedule::Schedule& schedule = found_.schedule;
    schedule.name = "recorded";
    std::vector<std::vector<int>> stages_of_rank;
    for (int rank = 0; rank < pp_ranks_; ++rank) {
      const Computations& order = *step.order[static_cast<std::size_t>(rank)];
      PERSEUS_ASSIGN_OR_RETURN(auto stages, StagesOf(rank, order));
      std::vector<schedule::Instruction>& instructions = schedule.pp_ranks.emplace_back();
      for (const MatchedInstruction& one : order) {
        const int stage = stages[static_cast<std::size_t>(one.chunk)];
        instructions.push_back({one.kind, stage, one.microbatch});
        schedule.microbatches = std::max(schedule.microbatches, one.microbatch + 1);
      }
      stages_of_rank.push_back(std::move(stages));
    }
    PERSEUS_RETURN_IF_ERROR(PlaceStages(stages_of_rank));
    if (const auto defect = schedule::FindDefect(schedule)) {
      return Fail(
          "{}: step {} is not one iteration of a pipeline: pp_rank {}: {}; are all forwards and "
          "backwards reported to the client library, each once a step?",
          where_, step.step, defect->pp_rank, defect->message);
    }
    Recognize(schedule);
    return {};
  }

  // If a generated schedule is the same, names the schedule after it.
  static void Recognize(schedule::Schedule& schedule) {
    const auto ranks = static_cast<int>(schedule.pp_ranks.size());
    for (const std::string_view name : schedule::ScheduleNames()) {
      const auto generated = schedule::GenerateSchedule(
          {std::string(name), ranks, schedule.microbatches, schedule.stages() / ranks});
      if (!generated || generated->pp_ranks != schedule.pp_ranks ||
          generated->pp_rank_of_stage != schedule.pp_rank_of_stage) {
        continue;
      }
      schedule.name = name;
      return;
    }
  }

  void Count(std::size_t newest) {
    const JointStep& chosen = steps_[newest];
    found_.last = chosen.step;
    found_.first = chosen.step;
    for (std::size_t i = newest; i > 0 && steps_[i - 1].IsSame(chosen); --i) {
      found_.first = steps_[i - 1].step;
    }
    for (const JointStep& step : steps_) {
      if (step.IsSame(chosen)) {
        ++found_.steps;
      } else {
        found_.others[WhatIsOther(step)].push_back(step.step);
      }
    }
  }

  std::string WhatIsOther(const JointStep& step) const {
    if (!step.disagreement.empty()) return step.disagreement;
    if (step.order.front()->empty()) return "without instructions";
    if (!HasBackward(step)) return "without backwards (an evaluation)";
    const std::size_t microbatches = CountMicrobatches(step);
    if (microbatches != static_cast<std::size_t>(found_.schedule.microbatches)) {
      return fmt::format("with {} microbatches", microbatches);
    }
    return "in another order";
  }

  const JobLogs& logs_;
  const std::set<protocol::RankId>& ranks_;
  std::string where_;
  int pp_ranks_ = 0;
  // Contains each order once, so that equal orders have one address.
  std::set<Computations> orders_;
  std::vector<JointStep> steps_;
  RanSchedule found_;
};

// Returns the first steps of a list: "4, 9 and 3 more".
std::string FirstOf(const std::vector<std::int64_t>& steps) {
  constexpr std::size_t kMostSteps = 5;
  const std::size_t count = std::min(steps.size(), kMostSteps);
  std::string text = fmt::format("{}", fmt::join(std::span(steps).first(count), ", "));
  if (steps.size() > count) text += fmt::format(" and {} more", steps.size() - count);
  return text;
}

}  // namespace

std::vector<MatchedInstruction> ComputationsOf(const protocol::RanStep& step) {
  std::vector<protocol::RanInstruction> instructions = step.instructions;
  std::ranges::stable_sort(instructions, {}, &protocol::RanInstruction::begin);
  std::vector<MatchedInstruction> matched;
  for (const protocol::RanInstruction& instruction : instructions) {
    if (!IsComputation(instruction.kind)) continue;
    matched.push_back({instruction.kind, instruction.microbatch, instruction.chunk});
  }
  return matched;
}

bool WaitsBeforeOptimizer(const protocol::RanStep& step) {
  const auto optimizer = std::ranges::find(step.instructions, InstructionKind::kOptimizerStep,
                                           &protocol::RanInstruction::kind);
  return std::ranges::any_of(step.waits, [&](const protocol::Wait& wait) {
    return optimizer == step.instructions.end() || wait.begin < optimizer->begin;
  });
}

Result<void> CheckRanSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                              const protocol::RanStep& step) {
  const std::vector<MatchedInstruction> wanted = PlannedOf(schedule, name.pp_rank);
  const std::vector<MatchedInstruction> ran = ComputationsOf(step);
  if (ran == wanted) return {};
  if (ran.empty()) {
    return Fail(
        "rank {} recorded step {} without an instruction (does the training code report forward "
        "and backward to the client library?)",
        Name(name), step.step);
  }
  if (const std::size_t count = MicrobatchesOf(ran); count != MicrobatchesOf(wanted)) {
    return Fail(
        "rank {} ran {} microbatches in step {}, but the job file has {} (correct "
        "`microbatches`)",
        Name(name), count, step.step, schedule.microbatches);
  }
  const auto [at_ran, at_wanted] = std::ranges::mismatch(ran, wanted);
  return Fail(
      "rank {} ran {} as number {} of step {}, but the schedule {} has {} (is this the job's "
      "schedule?)",
      Name(name), at_ran == ran.end() ? "nothing" : Describe(*at_ran, schedule),
      at_ran - ran.begin() + 1, step.step, schedule.name,
      at_wanted == wanted.end() ? "nothing" : Describe(*at_wanted, schedule));
}

Result<void> CheckRunsSchedule(const schedule::Schedule& schedule, const protocol::RankId& name,
                               const LoggedRank& rank) {
  Result<void> checked;
  for (const protocol::RanStep& step : rank.steps) {
    checked = CheckRanSchedule(schedule, name, step);
    if (checked) return checked;
  }
  return checked;
}

std::set<protocol::RankId> LoggedRanks(const JobLogs& logs) {
  std::set<protocol::RankId> ranks;
  for (const auto& [name, rank] : logs.ranks()) {
    if (!rank.steps.empty()) ranks.insert(name);
  }
  return ranks;
}

Result<RanSchedule> FindRanSchedule(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                                    const std::string& where) {
  return ScheduleFinder(logs, ranks, where).Find();
}

Result<RanSchedule> AwaitRanSchedule(const std::filesystem::path& job_directory,
                                     const ScheduleWait& wait, Clock& clock) {
  PERSEUS_ASSIGN_OR_RETURN(auto logs, JobLogs::Open(job_directory, JobLogs::Job::kIsRunning));
  std::set<protocol::RankId> ranks;
  std::int64_t last = -1;
  std::int64_t first = -1;
  Nanoseconds grew = clock.Now();  // The time at which the last rank appeared.
  Nanoseconds deadline = clock.Now() + wait.timeout;
  for (;;) {
    PERSEUS_RETURN_IF_ERROR(logs.ReadNew());
    const std::set<protocol::RankId> alive = logs.Alive();
    if (alive != ranks) grew = clock.Now();
    ranks = alive;
    if (const std::int64_t now = logs.LastStep(ranks); now != last) {
      if (first < 0) first = now;
      last = now;
      deadline = clock.Now() + wait.timeout;
    }
    const bool is_settled = !ranks.empty() && clock.Now() >= grew + wait.settling;
    if (is_settled || clock.Now() >= deadline) {
      auto found = FindRanSchedule(logs, ranks, job_directory.string());
      // If the search failed, more steps or ranks may still appear. But some errors are permanent.
      if (found || last - first >= kMostStepsWaited) return found;
      if (clock.Now() >= deadline) {
        return FailAs(ErrorKind::kSystem, "no step was recorded for {:g} s: {}",
                      ToSeconds(wait.timeout), found.error().Message());
      }
    }
    if (wait.should_end()) return tl::unexpected<Error>(EndedByRequest());
    clock.WaitUntil(clock.Now() + kScheduleLookEvery);
  }
}

std::string Describe(const RanSchedule& ran) {
  const schedule::Schedule& schedule = ran.schedule;
  std::string text = fmt::format(
      "{}: stages {}, pp_ranks {}, microbatches {}, pipelines {}, GPUs of a stage {}\n"
      "all ranks ran it in {} steps, last in steps {} to {}\n",
      schedule.name, schedule.stages(), schedule.pp_ranks.size(), schedule.microbatches,
      ran.pipelines, ran.gpus_per_stage, ran.steps, ran.first, ran.last);
  for (const auto& [what, steps] : ran.others) {
    text += fmt::format("other steps, {}: {} (step {})\n", what, steps.size(), FirstOf(steps));
  }
  return text;
}

}  // namespace perseus::tuner
