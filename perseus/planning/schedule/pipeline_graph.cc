// BuildInstructionGraph makes an instruction graph of a schedule and a profile.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {
namespace {

constexpr int kNone = -1;

// The option that runs without a plan: the option at maximum frequency. If several options have
// this frequency (and differ in other knobs), the fastest of them.
int FindBaseline(const std::vector<profile::Option>& options) {
  const auto best = std::min_element(options.begin(), options.end(),
                                     [](const profile::Option& left, const profile::Option& right) {
                                       if (left.frequency_mhz != right.frequency_mhz) {
                                         return left.frequency_mhz > right.frequency_mhz;
                                       }
                                       return left.time < right.time;
                                     });
  return static_cast<int>(best - options.begin());
}

class PipelineGraphBuilder {
 public:
  PipelineGraphBuilder(const Schedule& schedule, const profile::Profile& profile,
                       const PipelineModel& model)
      : schedule_(schedule), profile_(profile), model_(model) {}

  Result<InstructionGraph> Build() {
    PERSEUS_RETURN_IF_ERROR(CheckInputs());
    graph_.name = schedule_.name;
    graph_.other_knob_names = profile_.other_knob_names();
    graph_.knob_labels = profile_.knob_labels();
    const std::size_t pairs =
        schedule_.pp_rank_of_stage.size() * static_cast<std::size_t>(schedule_.microbatches);
    for (std::vector<int>& instructions : instruction_of_) instructions.resize(pairs, kNone);
    for (int pp_rank = 0; pp_rank < pp_ranks(); ++pp_rank) {
      PERSEUS_RETURN_IF_ERROR(LayOutRank(pp_rank));
    }
    AddDataDependencies();
    PERSEUS_RETURN_IF_ERROR(CheckDurations(graph_));

    const TopologicalOrder found = FindTopologicalOrder(graph_);
    if (!found.cycle.empty()) return FailWithDeadlock(found.cycle);
    return Renumber(std::move(graph_), found.order);
  }

 private:
  Result<void> CheckInputs() const {
    if (auto defect = FindDefect(schedule_)) {
      return Fail("schedule {}: pp_rank {}: {}", schedule_.name, defect->pp_rank, defect->message);
    }
    if (profile_.pp_ranks() != pp_ranks() && !HasStagesOfModel()) {
      return Fail(
          "{} has {} stages, but schedule {} has {} pp_ranks (a profile needs one stage for "
          "each pp_rank, or each stage of the model; profile again, or change `pp_ranks`)",
          profile_.name(), profile_.pp_ranks(), schedule_.name, pp_ranks());
    }
    // If the profile has chunks that the schedule does not have, they would be ignored without this
    // check.
    if (const int chunks =
            1 + *std::max_element(schedule_.chunk_of_stage.begin(), schedule_.chunk_of_stage.end());
        profile_.chunks() > chunks) {
      return Fail(
          "{} has {} chunks for each stage, but schedule {} runs {} on a pp_rank (set `chunks` to "
          "{} with a schedule that has chunks, or profile again without interleaving)",
          profile_.name(), profile_.chunks(), schedule_.name, chunks, profile_.chunks());
    }
    if (model_.has_power_of_stages && !profile_.mean_blocking_power_w()) {
      return Fail("{} has no blocking power for each stage (add the column blocking_power)",
                  profile_.name());
    }
    if (model_.has_power_of_stages && HasStagesOfModel()) {
      return Fail(
          "{} has a blocking power for each stage, but schedule {} runs several stages on a "
          "pp_rank "
          "(write the column chunk, or remove the column blocking_power)",
          profile_.name(), schedule_.name);
    }
    if (model_.gpus_per_stage < 1) {
      return Fail("gpus_per_stage is {} (expected at least 1)", model_.gpus_per_stage);
    }
    return {};
  }

  // The blocking power of the pp_rank above the mean of all pp_ranks. 0 if they have one.
  double AboveMeanW(int pp_rank) const {
    if (!model_.has_power_of_stages) return 0;
    return profile_.blocking_powers_w()[static_cast<std::size_t>(pp_rank)] -
           model_.blocking_power_w;
  }

  // Whether the pp_ranks run several stages, and the profile numbers the stages as the schedule
  // does.
  bool HasStagesOfModel() const {
    return profile_.chunks() == 1 && profile_.pp_ranks() == schedule_.stages() &&
           schedule_.stages() > pp_ranks();
  }

  Result<void> LayOutRank(int pp_rank) {
    graph_.pp_rank_names.push_back(fmt::format("pp_rank {}", pp_rank));
    graph_.pp_rank_orders.emplace_back();
    const FixedInstructions& fixed = model_.fixed;
    int load = kNone;
    for (const Instruction& instruction : schedule_.pp_ranks[static_cast<std::size_t>(pp_rank)]) {
      if (instruction.kind == InstructionKind::kForward && instruction.stage == 0 &&
          fixed.load.time > 0) {
        if (load == kNone) load = AddFixedOptions(InstructionKind::kLoad, pp_rank, fixed.load);
        Append(pp_rank, load, instruction.microbatch);
      }
      PERSEUS_ASSIGN_OR_RETURN(auto options, OptionsOf(instruction));
      InstructionOf(instruction.kind, instruction.stage, instruction.microbatch) =
          Append(pp_rank, options, instruction.microbatch);
    }
    if (fixed.all_reduce.time > 0) {
      Append(pp_rank, AddFixedOptions(InstructionKind::kAllReduce, pp_rank, fixed.all_reduce),
             kNone);
    }
    if (fixed.optimizer.time > 0) {
      Append(pp_rank, AddFixedOptions(InstructionKind::kOptimizer, pp_rank, fixed.optimizer),
             kNone);
    }
    return {};
  }

  // Adds an instruction after the last one of its pp_rank.
  int Append(int pp_rank, int option_set, int microbatch) {
    const int instruction = static_cast<int>(graph_.instructions.size());
    graph_.instructions.push_back({option_set, pp_rank, microbatch});
    std::vector<int>& order = graph_.pp_rank_orders[static_cast<std::size_t>(pp_rank)];
    if (!order.empty()) graph_.dependencies.push_back({order.back(), instruction, 0});
    order.push_back(instruction);
    return instruction;
  }

  // The option set of this stage and kind. The first call copies the set from the profile.
  Result<int> OptionsOf(const Instruction& instruction) {
    const auto stage = static_cast<std::size_t>(instruction.stage);
    if (option_sets_.empty()) {
      option_sets_.resize(schedule_.pp_rank_of_stage.size());
      for (auto& of_stage : option_sets_) of_stage.fill(kNone);
    }
    int& option_set = option_sets_[stage][static_cast<std::size_t>(instruction.kind)];
    if (option_set != kNone) return option_set;

    const int pp_rank = schedule_.pp_rank_of_stage[stage];
    const int chunk = schedule_.chunk_of_stage[stage];
    const profile::ProfileEntry* entry = HasStagesOfModel()
                                             ? profile_.Find(instruction.stage, 0, instruction.kind)
                                             : profile_.Find(pp_rank, chunk, instruction.kind);
    if (entry == nullptr) return FailWithMissingEntry(pp_rank, chunk, instruction.kind);
    OptionSet set{.name = OptionSetName(pp_rank, chunk, instruction.kind),
                  .kind = instruction.kind,
                  .pp_rank = pp_rank,
                  .chunk = chunk,
                  .options = entry->options,
                  .baseline = FindBaseline(entry->options)};
    for (profile::Option& option : set.options) {
      option.energy_j -= AboveMeanW(pp_rank) * ToSeconds(option.time);
      if (option.energy_j <= 0) {
        return Fail(InFile(profile_.name()),
                    "{}: draws less than a waiting GPU (correct the column blocking_power)",
                    set.name);
      }
      option.energy_j *= model_.gpus_per_stage;
      option.energy_ci_j *= model_.gpus_per_stage;
    }
    option_set = AddOptions(std::move(set));
    return option_set;
  }

  int AddFixedOptions(InstructionKind kind, int pp_rank, const FixedInstructions::Cost& cost) {
    profile::Option option;
    option.time = cost.time;
    option.other_knobs.resize(profile_.other_knob_names().size());
    const double energy_j = cost.energy_j < 0
                                ? model_.blocking_power_w * ToSeconds(cost.time)
                                : cost.energy_j - AboveMeanW(pp_rank) * ToSeconds(cost.time);
    option.energy_j = energy_j * model_.gpus_per_stage;
    return AddOptions({.name = fmt::format("pp_rank {} {}", pp_rank, Name(kind)),
                       .kind = kind,
                       .pp_rank = pp_rank,
                       .chunk = 0,
                       .options = {std::move(option)},
                       .baseline = 0});
  }

  int AddOptions(OptionSet set) {
    graph_.option_sets.push_back(std::move(set));
    return static_cast<int>(graph_.option_sets.size()) - 1;
  }

  std::string OptionSetName(int pp_rank, int chunk, InstructionKind kind) const {
    if (schedule_.stages() == pp_ranks()) return fmt::format("stage {} {}", pp_rank, Name(kind));
    return fmt::format("stage {} chunk {} {}", pp_rank, chunk, Name(kind));
  }

  // Explains how to convert a profile with one row for each stage of the model to a profile for a
  // schedule with several chunks on each pp_rank. Returns an empty text if this is impossible.
  std::string ModelStagesRemedy() const {
    const int stages = profile_.pp_ranks();
    const int chunks = schedule_.stages() / pp_ranks();
    const int ranks = stages / chunks;
    if (chunks < 2 || ranks < 2 || stages % chunks != 0) return "";
    return fmt::format("; if its {} stages are those of the model, use `pp_ranks = {}`", stages,
                       ranks);
  }

  // A profile often has full backwards and the schedule needs split ones, or the other way round.
  std::string_view MissingKindRemedy(int pp_rank, int chunk, InstructionKind kind) const {
    using enum InstructionKind;
    const auto has = [&](InstructionKind other) {
      return profile_.Find(pp_rank, chunk, other) != nullptr;
    };
    if (kind == kBackward && has(kBackwardInput) && has(kBackwardWeight)) {
      return "the profile has split backwards: choose a schedule with them, such as zb-h1, or "
             "profile full backwards, too";
    }
    if ((kind == kBackwardInput || kind == kBackwardWeight) && has(kBackward)) {
      return "the profile has full backwards: choose a schedule with them, such as 1f1b, or "
             "profile backward_input and backward_weight, too";
    }
    return "profile it, or choose a schedule without it";
  }

  tl::unexpected<Error> FailWithMissingEntry(int pp_rank, int chunk, InstructionKind kind) const {
    const std::string missing = OptionSetName(pp_rank, chunk, kind);
    if (chunk >= profile_.chunks() && !HasStagesOfModel()) {
      return Fail(
          InFile(profile_.name()),
          "{} is missing: schedule {} runs several chunks on a pp_rank, but the profile has "
          "{} for each stage (profile every chunk, and write the column chunk{})",
          missing, schedule_.name,
          profile_.chunks() == 1 ? std::string("only one chunk")
                                 : fmt::format("only {} chunks", profile_.chunks()),
          ModelStagesRemedy());
    }
    return Fail(InFile(profile_.name()), "{} is missing, which schedule {} runs ({})", missing,
                schedule_.name, MissingKindRemedy(pp_rank, chunk, kind));
  }

  void AddDataDependencies() {
    using enum InstructionKind;
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) {
        const int forward = InstructionOf(kForward, stage, microbatch);
        const int gradient = GradientOf(stage, microbatch);
        const int weight = InstructionOf(kBackwardWeight, stage, microbatch);
        const int recompute = InstructionOf(kRecompute, stage, microbatch);
        if (stage + 1 < schedule_.stages()) {
          Connect(forward, InstructionOf(kForward, stage + 1, microbatch));
          Connect(GradientOf(stage + 1, microbatch), gradient);
        }
        Connect(forward, gradient);
        Connect(forward, recompute);
        Connect(recompute, gradient);
        Connect(gradient, weight);
      }
    }
  }

  void Connect(int from, int to) {
    if (from == kNone || to == kNone) return;
    // On one pp_rank, the order implies the dependency. If the order is reversed, the dependency
    // closes a cycle, and Build finds the deadlock.
    if (FollowsOnRank(from, to)) return;
    graph_.dependencies.push_back({from, to, RankOf(from) == RankOf(to) ? 0 : model_.fixed.p2p});
  }

  // Describes a deadlock: a cycle of pp_ranks that wait for each other. Each pp_rank waits for a
  // computation of another pp_rank, which comes after the instruction at which that pp_rank waits.
  // The message leaves out dependencies that come from the order of a pp_rank.
  tl::unexpected<Error> FailWithDeadlock(const std::vector<int>& cycle) const {
    constexpr int kMostShown = 4;
    std::string waits;
    int shown = 0;
    for (std::size_t i = 0; i < cycle.size() && shown < kMostShown; ++i) {
      const int from = cycle[i];
      const int to = cycle[(i + 1) % cycle.size()];
      if (FollowsOnRank(from, to)) continue;
      waits += fmt::format("{}pp_rank {} waits at {} for {}", shown++ == 0 ? "" : ", ", RankOf(to),
                           DescribeComputation(to), DescribeComputation(from));
    }
    return Fail(
        "schedule {} deadlocks: {} (order each pp_rank so that every computation comes after those "
        "that it needs)",
        schedule_.name, waits);
  }

  std::string DescribeComputation(int instruction) const {
    const InstructionNode& described = graph_.instructions[static_cast<std::size_t>(instruction)];
    const OptionSet& options = graph_.options_of(instruction);
    int stage = 0;
    while (schedule_.pp_rank_of_stage[static_cast<std::size_t>(stage)] != options.pp_rank ||
           schedule_.chunk_of_stage[static_cast<std::size_t>(stage)] != options.chunk) {
      ++stage;
    }
    return Describe(Instruction{options.kind, stage, described.microbatch});
  }

  int& InstructionOf(InstructionKind kind, int stage, int microbatch) {
    const std::size_t pair =
        static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule_.microbatches) +
        static_cast<std::size_t>(microbatch);
    return instruction_of_[static_cast<std::size_t>(kind)][pair];
  }
  // The instruction that the previous stage waits for: the full backward, or the dgrad.
  int GradientOf(int stage, int microbatch) {
    const int full = InstructionOf(InstructionKind::kBackward, stage, microbatch);
    return full != kNone ? full : InstructionOf(InstructionKind::kBackwardInput, stage, microbatch);
  }

  int pp_ranks() const { return static_cast<int>(schedule_.pp_ranks.size()); }
  int RankOf(int instruction) const {
    return graph_.instructions[static_cast<std::size_t>(instruction)].pp_rank;
  }
  // Whether `from` is before `to` on one pp_rank. Until the graph is sorted, the numbers of
  // instructions increase along the order of a pp_rank.
  bool FollowsOnRank(int from, int to) const { return RankOf(from) == RankOf(to) && from < to; }

  static constexpr std::size_t kComputations = kComputationKinds;

  const Schedule& schedule_;
  const profile::Profile& profile_;
  const PipelineModel& model_;
  InstructionGraph graph_;
  std::vector<std::array<int, kComputations>> option_sets_;     // [stage][kind]
  std::array<std::vector<int>, kComputations> instruction_of_;  // [kind][stage and microbatch]
};

}  // namespace

Result<InstructionGraph> BuildInstructionGraph(const Schedule& schedule,
                                               const profile::Profile& profile,
                                               const PipelineModel& model) {
  return PipelineGraphBuilder(schedule, profile, model).Build();
}

}  // namespace perseus::schedule
