#include "perseus/runtime/profiler/sweep.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <utility>

#include "perseus/base/statistics.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/runtime/profiler/option_model.h"

namespace perseus::profiler {
namespace {

// The clocks of the descent, as fractions of the highest clock. Below 0.6, GPUs need more energy
// again.
constexpr std::array kDescent = {1.0, 0.88, 0.77, 0.66};

// The number of first rounds, whose steps run at the highest clocks. These rounds cost no slowdown,
// and the deadline of every plan depends on their results.
constexpr int kBaselineRounds = 3;

// If an instruction takes less than this fraction of the longest instruction of its rank, it
// computes nothing. An example is the first stage's backward_input in a zero-bubble schedule. No
// counter shows the power of such an instruction, and its energy does not matter.
constexpr double kPartOfNothing = 0.01;

// The fraction by which a round may take longer than predicted, because its clocks are often new to
// the model. The round must stay within the budget despite this error.
constexpr double kPredictionError = 0.04;

// The number of candidates, by greatest gain, for which the gain of other groups is computed, too.
constexpr std::size_t kCandidates = 256;

// Returns E[(deviation N - distance)^+], where N is standard normal.
double ExpectedImprovement(double distance, double deviation) {
  if (deviation <= 0) return 0;
  const double z = distance / deviation;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
  return deviation * (density - z * 0.5 * std::erfc(z / std::numbers::sqrt2));
}

// Makes one decision from the sweep so far.
class Chooser {
 public:
  Chooser(const SweepJob& job, const SweepBudget& budget, std::span<const MeasuredOption> measured)
      : job_(job), budget_(budget), groups_(GroupsOf(job.schedule)), model_(measured) {}

  // Returns the clocks of the next round of the descent, or nullopt when all groups have left or
  // finished the descent.
  std::optional<std::vector<int>> Descent() const {
    const int descent = std::min(budget_.frequencies, static_cast<int>(kDescent.size()));
    bool descends = false;
    std::vector<int> clocks = AllHighest();
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      for (int i = 0; i < descent; ++i) {
        const int mhz =
            NearestTo(ClocksOf(group), kDescent[static_cast<std::size_t>(i)] * Highest(group));
        if (model_.Measured(groups_[group], mhz)) continue;
        if (i > 1 && OnlyLoses(group)) break;
        clocks[group] = mhz;
        descends = true;
        break;
      }
    }
    if (!descends) return std::nullopt;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      for (const std::size_t other : AtOneClockWith(group)) {
        clocks[group] = std::min(clocks[group], clocks[other]);
      }
    }
    return clocks;
  }

  Result<void> ComputeGains() {
    std::vector<MeasuredOption> measured;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      for (const int mhz : ClocksOf(group)) {
        const MeasuredOption* option = model_.Measured(groups_[group], mhz);
        if (option != nullptr) measured.push_back(*option);
      }
    }
    PERSEUS_ASSIGN_OR_RETURN(const profile::Profile profile,
                             PlanningProfile(job_, measured, /*time_margin=*/0));
    PERSEUS_ASSIGN_OR_RETURN(schedule::InstructionGraph graph,
                             schedule::BuildInstructionGraph(job_.schedule, profile, job_.model));
    const int gpus = job_.model.gpus_per_stage;
    PERSEUS_ASSIGN_OR_RETURN(
        const plan::Planner planner,
        plan::Planner::Create(std::move(graph),
                              {.blocking_power_w = job_.model.blocking_power_w * gpus},
                              plan::Planner::FewOptions::kAccept));
    const double waiting_w = job_.model.blocking_power_w * gpus * planner.pp_ranks();
    PERSEUS_ASSIGN_OR_RETURN(
        const frontier::Solution solution,
        frontier::SolveDeadline(planner.network(), planner.baseline().time, FromWatts(waiting_w)));
    iteration_energy_j_ = planner.baseline().energy_j / gpus;

    std::vector<std::vector<double>> prices_w(groups_.size());
    for (std::size_t i = 0; i < planner.graph().instructions.size(); ++i) {
      const schedule::OptionSet& set = planner.graph().options_of(static_cast<int>(i));
      if (!IsComputation(set.kind)) continue;
      prices_w[GroupOf(set)].push_back(ToWatts(solution.flow[i]) / gpus);
    }
    gains_.clear();
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      gains_.emplace_back(ClocksOf(group).size());
      AddGains(planner.graph(), group, prices_w[group]);
    }
    return {};
  }

  // Chooses a clock for every group, in the order of gain.
  std::vector<int> ChooseByGain() {
    std::vector<int> clocks(groups_.size(), 0);
    while (std::ranges::find(clocks, 0) != clocks.end()) {
      std::vector<Candidate> candidates;
      for (std::size_t group = 0; group < groups_.size(); ++group) {
        if (clocks[group] != 0) continue;
        for (std::size_t i = 0; i < gains_[group].size(); ++i) {
          if (!IsAllowed(group, ClocksOf(group)[i])) continue;
          candidates.push_back({group, i, gains_[group][i]});
        }
      }
      const auto by_gain = [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; };
      std::stable_sort(candidates.begin(), candidates.end(), by_gain);
      candidates.resize(std::min(candidates.size(), kCandidates));
      for (Candidate& candidate : candidates) candidate.gain = GainForAll(candidate);
      Candidate best = *std::min_element(candidates.begin(), candidates.end(), by_gain);
      for (const std::size_t group : AtOneClockWith(best.group)) {
        best.group = group;
        Choose(best, clocks);
      }
    }
    return clocks;
  }

  double chosen_gain() const { return chosen_gain_ / iteration_energy_j_; }
  // Returns the model's prediction of the time of a step at these clocks, in seconds.
  Result<double> StepSeconds(std::span<const int> clocks) const {
    std::vector<profile::ProfileEntry> entries;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      const OptionModel::Prediction p = model_.At(groups_[group], clocks[group]);
      profile::Option option;
      option.frequency_mhz = clocks[group];
      option.time = ToNanoseconds(p.time_s);
      option.energy_j = p.energy_j();
      entries.push_back({groups_[group].rank, groups_[group].chunk, groups_[group].kind, {option}});
    }
    const profile::Profile profile("the round", {}, std::move(entries));
    PERSEUS_ASSIGN_OR_RETURN(schedule::InstructionGraph graph,
                             schedule::BuildInstructionGraph(job_.schedule, profile, job_.model));
    const plan::Evaluator evaluator(graph, {.blocking_power_w = job_.model.blocking_power_w});
    return ToSeconds(evaluator.Evaluate(std::vector<int>(graph.instructions.size(), 0)).time);
  }

  // Raises groups to their highest clocks, the slowest first, until a step takes at most `most_s`.
  Result<std::vector<int>> RaisedTo(double most_s, std::vector<int> clocks) const {
    while (true) {
      PERSEUS_ASSIGN_OR_RETURN(const double seconds, StepSeconds(clocks));
      // The slowest group has the lowest clock relative to its own highest clock.
      std::size_t slowest = groups_.size();
      double least_part = 1;
      for (std::size_t group = 0; group < groups_.size(); ++group) {
        const double part = static_cast<double>(clocks[group]) / Highest(group);
        if (part < least_part) {
          least_part = part;
          slowest = group;
        }
      }
      if (seconds <= most_s || slowest == groups_.size()) return clocks;
      for (const std::size_t group : AtOneClockWith(slowest)) clocks[group] = Highest(group);
    }
  }

  std::vector<protocol::KindClock> Named(std::span<const int> clocks) const {
    std::vector<protocol::KindClock> named;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      named.push_back(
          {groups_[group].rank, groups_[group].chunk, groups_[group].kind, clocks[group]});
    }
    return named;
  }

  std::vector<int> AllHighest() const {
    std::vector<int> clocks;
    for (std::size_t group = 0; group < groups_.size(); ++group) clocks.push_back(Highest(group));
    return clocks;
  }

  // Whether every group was measured at its highest clock, so that lower clocks can follow. If two
  // kinds always run together, a counter that changes rarely may never separate their powers. So
  // after twice the usual steps, groups without a power are accepted, too. For such a group, the
  // model uses the powers of other groups of the kind.
  bool KnowsAll(const SweepSpent& spent) const {
    const bool is_late = spent.steps >= 2 * kBaselineRounds * budget_.steps_per_round;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      const MeasuredOption* option = model_.Measured(groups_[group], Highest(group));
      if (option == nullptr || !model_.Knows(groups_[group].kind)) return false;
      if (option->power_w <= 0 && !is_late && !ComputesNothing(group)) return false;
    }
    return true;
  }

 private:
  struct Candidate {
    std::size_t group = 0;
    std::size_t clock = 0;
    double gain = 0;
  };
  // How much a measurement of one group at one clock says about other groups of the same kind.
  struct SharedInformation {
    std::vector<std::pair<std::size_t, std::size_t>> groups;  // And the index of the clock in each.
    std::vector<std::vector<double>> parts;                   // [measured group][other group]
    std::size_t PlaceOf(std::size_t group) const {
      const auto found =
          std::ranges::find(groups, group, [](const auto& one) { return one.first; });
      return static_cast<std::size_t>(found - groups.begin());
    }
  };
  const std::vector<int>& ClocksOf(std::size_t group) const {
    return job_.clocks_mhz[static_cast<std::size_t>(groups_[group].rank)];
  }
  int Highest(std::size_t group) const { return ClocksOf(group).back(); }
  int MeasuredCount(std::size_t group) const {
    int count = 0;
    for (const int mhz : ClocksOf(group)) count += model_.Measured(groups_[group], mhz) ? 1 : 0;
    return count;
  }

  bool ComputesNothing(std::size_t group) const {
    double longest_s = 0;
    for (std::size_t other = 0; other < groups_.size(); ++other) {
      if (groups_[other].rank != groups_[group].rank) continue;
      const MeasuredOption* option = model_.Measured(groups_[other], Highest(other));
      if (option != nullptr) longest_s = std::max(longest_s, option->time_s);
    }
    return model_.Measured(groups_[group], Highest(group))->time_s < kPartOfNothing * longest_s;
  }

  // Whether the lower of the two lowest measured clocks certainly needs more effective energy than
  // the other.
  bool OnlyLoses(std::size_t group) const {
    const MeasuredOption* lower = nullptr;
    for (const int mhz : ClocksOf(group)) {
      const MeasuredOption* option = model_.Measured(groups_[group], mhz);
      if (option == nullptr || option->power_w <= 0) continue;
      if (lower == nullptr) {
        lower = option;
        continue;
      }
      const double waiting_w = job_.model.blocking_power_w;
      const double loss_j =
          lower->energy_j() - option->energy_j() - waiting_w * (lower->time_s - option->time_s);
      return loss_j > std::hypot(lower->energy_ci_j(), option->energy_ci_j());
    }
    return false;
  }

  bool IsAllowed(std::size_t group, int mhz) const {
    return model_.Measured(groups_[group], mhz) || MeasuredCount(group) < budget_.frequencies;
  }

  // Adds the expected savings of measuring each option of the group, summed over its instructions.
  // Each instruction has its own price of time.
  void AddGains(const schedule::InstructionGraph& graph, std::size_t group,
                std::span<const double> prices_w) {
    const std::vector<int>& clocks = ClocksOf(group);
    std::vector<OptionModel::Prediction> predictions;
    for (const int mhz : clocks) predictions.push_back(model_.At(groups_[group], mhz));
    const auto set = std::find_if(
        graph.option_sets.begin(), graph.option_sets.end(),
        [&](const schedule::OptionSet& s) { return IsComputation(s.kind) && GroupOf(s) == group; });
    const double waiting_w = job_.model.blocking_power_w;
    for (const double price_w : prices_w) {
      const double time_w = price_w - waiting_w;
      std::vector<double> costs_j;
      for (std::size_t i = 0; i < clocks.size(); ++i) {
        // The graph's options begin with the highest clock.
        const profile::Option& option = set->options[clocks.size() - 1 - i];
        costs_j.push_back(option.energy_j / job_.model.gpus_per_stage +
                          time_w * ToSeconds(option.time));
      }
      const auto best = std::min_element(costs_j.begin(), costs_j.end());
      double second = std::numeric_limits<double>::infinity();
      for (auto cost = costs_j.begin(); cost != costs_j.end(); ++cost) {
        if (cost != best) second = std::min(second, *cost);
      }
      for (std::size_t i = 0; i < clocks.size(); ++i) {
        const OptionModel::Prediction& p = predictions[i];
        const double deviation_j = std::hypot((p.energy_j() + time_w * p.time_s) * p.time_deviation,
                                              p.energy_j() * p.power_deviation);
        const double distance_j = &costs_j[i] == &*best ? second - *best : costs_j[i] - *best;
        gains_[group][i] += ExpectedImprovement(distance_j, deviation_j);
      }
    }
  }

  void Choose(const Candidate& candidate, std::vector<int>& clocks) {
    const int mhz = ClocksOf(candidate.group)[candidate.clock];
    clocks[candidate.group] = mhz;
    const SharedInformation& shared = SharedInformationAt(groups_[candidate.group].kind, mhz);
    const std::vector<double>& parts = shared.parts[shared.PlaceOf(candidate.group)];
    for (std::size_t i = 0; i < parts.size(); ++i) {
      double& gain = gains_[shared.groups[i].first][shared.groups[i].second];
      chosen_gain_ += gain * parts[i];
      gain -= gain * parts[i];
    }
  }

  // Returns all groups that have to run at the same clock as `group`, including `group`.
  std::vector<std::size_t> AtOneClockWith(std::size_t group) const {
    if (job_.clocks == SweepJob::Clocks::kOneAGroup) return {group};
    std::vector<std::size_t> others;
    for (std::size_t other = 0; other < groups_.size(); ++other) {
      if (groups_[other].rank == groups_[group].rank) others.push_back(other);
    }
    return others;
  }

  // Returns information about the groups of the kind that have this clock: the fraction of one
  // group's variance that a measurement of another group removes.
  const SharedInformation& SharedInformationAt(InstructionKind kind, int mhz) {
    const auto [place, is_new] = shared_.try_emplace({kind, mhz});
    SharedInformation& shared = place->second;
    if (!is_new) return shared;
    std::vector<InstructionGroup> names;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      const std::vector<int>& clocks = ClocksOf(group);
      const auto at = std::lower_bound(clocks.begin(), clocks.end(), mhz);
      if (groups_[group].kind != kind || at == clocks.end() || *at != mhz) continue;
      shared.groups.push_back({group, static_cast<std::size_t>(at - clocks.begin())});
      names.push_back(groups_[group]);
    }
    const OptionModel::Covariances covariances = model_.CovariancesAt(names, mhz);
    const auto part = [](const std::vector<std::vector<double>>& c, std::size_t by, std::size_t of,
                         double error) {
      return c[by][of] * c[by][of] / ((c[by][by] + error * error) * std::max(c[of][of], 1e-14));
    };
    for (std::size_t by = 0; by < names.size(); ++by) {
      shared.parts.emplace_back();
      for (std::size_t of = 0; of < names.size(); ++of) {
        const double both = 0.5 * (part(covariances.time, by, of, model_.usual_time_error(kind)) +
                                   part(covariances.power, by, of, model_.usual_power_error(kind)));
        shared.parts.back().push_back(std::min(1.0, both));
      }
    }
    return shared;
  }

  // Returns the gain of all groups together if this candidate is measured.
  double GainForAll(const Candidate& candidate) {
    const InstructionKind kind = groups_[candidate.group].kind;
    const SharedInformation& shared =
        SharedInformationAt(kind, ClocksOf(candidate.group)[candidate.clock]);
    const std::vector<double>& parts = shared.parts[shared.PlaceOf(candidate.group)];
    double gain = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      gain += parts[i] * gains_[shared.groups[i].first][shared.groups[i].second];
    }
    return gain;
  }

  std::size_t GroupOf(const schedule::OptionSet& set) const {
    const InstructionGroup wanted{set.pp_rank, set.chunk, set.kind};
    return static_cast<std::size_t>(std::lower_bound(groups_.begin(), groups_.end(), wanted) -
                                    groups_.begin());
  }

  const SweepJob& job_;
  const SweepBudget& budget_;
  std::vector<InstructionGroup> groups_;
  OptionModel model_;
  std::map<std::pair<InstructionKind, int>, SharedInformation> shared_;
  std::vector<std::vector<double>> gains_;  // [group][clock] in J per iteration.
  double iteration_energy_j_ = 1;
  double chosen_gain_ = 0;
};

Result<void> CheckJob(const SweepJob& job, std::span<const MeasuredOption> measured) {
  for (std::size_t rank = 0; rank < job.schedule.pp_ranks.size(); ++rank) {
    if (rank >= job.clocks_mhz.size() || job.clocks_mhz[rank].empty()) {
      return Fail("rank {} has no clocks to choose from (does its log have sm_clocks_mhz?)", rank);
    }
  }
  const std::vector<InstructionGroup> groups = GroupsOf(job.schedule);
  for (const MeasuredOption& option : measured) {
    if (std::ranges::binary_search(groups, option.group)) continue;
    return Fail(
        "{} of chunk {} on rank {} was measured, but the schedule {} has no such instruction (are "
        "the measurements of another job?)",
        Name(option.group.kind), option.group.chunk, option.group.rank, job.schedule.name);
  }
  return {};
}

SweepRound EndOfSweep(std::string reason) {
  SweepRound round;
  round.reason = std::move(reason);
  return round;
}

}  // namespace

Result<void> CheckBudget(const SweepBudget& budget) {
  // The sum of three parts: the steps of the rounds at the highest clocks, the steps of one round
  // at lower clocks, and the step in which the clocks change.
  const int least = (kBaselineRounds + 1) * budget.steps_per_round + 1;
  if (budget.steps >= least) return {};
  return Fail(
      "a budget of {} steps ends before any clock except the highest is measured, at {} steps per "
      "round (raise `budget_steps` to at least {}, better to 40, or lower `steps_per_round`)",
      budget.steps, budget.steps_per_round, least);
}

double SweepSpent::Slowdown(double baseline_s) const {
  return steps == 0 ? 0 : seconds / (steps * baseline_s) - 1;
}

namespace {

bool IsOfOptimizer(const InstructionGroup& group) {
  return group.kind == InstructionKind::kOptimizerStep;
}

// Whether the job has an optimizer whose steps are too short for their power to be measured.
bool HasTooShortOptimizer(const SweepJob& job, std::span<const MeasuredOption> measured) {
  const auto is_known = [&](InstructionKind kind) {
    return std::ranges::any_of(measured, [kind](const MeasuredOption& option) {
      return option.group.kind == kind && option.power_w > 0;
    });
  };
  return std::ranges::any_of(GroupsOf(job.schedule), IsOfOptimizer) &&
         is_known(InstructionKind::kBackward) && !is_known(InstructionKind::kOptimizerStep);
}

// The clock of such an optimizer is that of the backward before it.
Result<SweepRound> ChooseRoundWithoutOptimizer(const SweepJob& job, const SweepBudget& budget,
                                               std::span<const MeasuredOption> measured,
                                               const SweepSpent& spent) {
  SweepJob others = job;
  for (auto& rank : others.schedule.pp_ranks) {
    std::erase_if(rank, [](const schedule::Instruction& one) {
      return one.kind == InstructionKind::kOptimizerStep;
    });
  }
  std::vector<MeasuredOption> of_others(measured.begin(), measured.end());
  std::erase_if(of_others, [](const MeasuredOption& one) { return IsOfOptimizer(one.group); });
  PERSEUS_ASSIGN_OR_RETURN(auto round, ChooseRound(others, budget, of_others, spent));
  std::vector<protocol::KindClock> clocks = round.clocks;
  for (const protocol::KindClock& clock : round.clocks) {
    if (clock.kind != InstructionKind::kBackward) continue;
    clocks.push_back(clock);
    clocks.back().kind = InstructionKind::kOptimizerStep;
  }
  round.clocks = std::move(clocks);
  return round;
}

}  // namespace

Result<SweepRound> ChooseRound(const SweepJob& job, const SweepBudget& budget,
                               std::span<const MeasuredOption> measured, const SweepSpent& spent) {
  PERSEUS_RETURN_IF_ERROR(CheckJob(job, measured));
  if (HasTooShortOptimizer(job, measured)) {
    return ChooseRoundWithoutOptimizer(job, budget, measured, spent);
  }
  if (spent.steps >= budget.steps) {
    return EndOfSweep(fmt::format("the budget of {} steps is spent", budget.steps));
  }
  Chooser chooser(job, budget, measured);
  SweepRound round;
  round.steps = std::min(budget.steps_per_round, budget.steps - spent.steps);
  round.reason = "descent";
  if (!chooser.KnowsAll(spent)) {
    round.clocks = chooser.Named(chooser.AllHighest());
    round.steps = std::min(kBaselineRounds * budget.steps_per_round, budget.steps - spent.steps);
    return round;
  }
  std::optional<std::vector<int>> clocks = chooser.Descent();
  if (!clocks) {
    PERSEUS_RETURN_IF_ERROR(chooser.ComputeGains());
    clocks = chooser.ChooseByGain();
    round.reason = "adaptive";
    if (chooser.chosen_gain() < budget.least_gain) {
      return EndOfSweep(fmt::format("another round would change the plan by {:.3f} % of its energy",
                                    100 * chooser.chosen_gain()));
    }
  }
  PERSEUS_ASSIGN_OR_RETURN(const double baseline_s, chooser.StepSeconds(chooser.AllHighest()));
  const double left_s =
      budget.slowdown * budget.steps * baseline_s - (spent.seconds - spent.steps * baseline_s);
  const double most_s = baseline_s * (1 - kPredictionError) + std::max(0.0, left_s) / round.steps;
  PERSEUS_ASSIGN_OR_RETURN(const std::vector<int> affordable,
                           chooser.RaisedTo(most_s, *std::move(clocks)));
  // If the budget has no slack, even steps at the highest clocks may exceed it.
  if (most_s <= baseline_s) {
    return EndOfSweep(fmt::format("the budget of {:.1f} % slowdown over {} steps is spent",
                                  100 * budget.slowdown, budget.steps));
  }
  PERSEUS_ASSIGN_OR_RETURN(round.predicted_s, chooser.StepSeconds(affordable));
  round.clocks = chooser.Named(affordable);
  return round;
}

}  // namespace perseus::profiler
