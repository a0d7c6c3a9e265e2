#include "perseus/simulation/emulator/pipeline_runs.h"

#include <algorithm>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::emulator {

std::string NameOf(const Disturbance& disturbance) {
  if (!disturbance.where.empty()) return disturbance.where;
  return fmt::format("the straggler of dp_rank {}", disturbance.dp_rank);
}

Executor::Executor(const plan::Planner& planner, const std::vector<Disturbance>& disturbances)
    : graph_(planner.graph()),
      disturbances_(disturbances),
      evaluator_(planner.graph(), planner.model()) {
  for (const schedule::OptionSet& set : graph_.option_sets) {
    Nanoseconds longest = 0;
    for (const profile::Option& option : set.options) longest = std::max(longest, option.time);
    longest_.push_back(static_cast<double>(longest));
  }
  for (const schedule::Dependency& dependency : graph_.dependencies) {
    delays_ += static_cast<double>(dependency.delay);
  }
}

Result<Execution> Executor::Execute(const std::vector<int>& options,
                                    std::span<const Presence> presences,
                                    const plan::Variation& noise) const {
  const bool is_cut = std::any_of(presences.begin(), presences.end(), [](const Presence& presence) {
    return presence.from > 0 || presence.until < kForever;
  });
  std::vector<Nanoseconds> starts(graph_.instructions.size(), 0);
  for (;;) {
    Disturbed disturbed = Apply(options, presences, noise, starts);
    PERSEUS_RETURN_IF_ERROR(CheckFits(disturbed.variation, presences));
    plan::Evaluation evaluation = evaluator_.Evaluate(disturbed.options, disturbed.variation);
    if (!is_cut || evaluation.starts == starts) {
      return Execution{{std::move(disturbed.options), std::move(evaluation)},
                       std::move(disturbed.noticed)};
    }
    starts = std::move(evaluation.starts);
  }
}

bool Executor::IsComputation(int instruction) const {
  return plan_file::IsPlanned(graph_.options_of(instruction).kind);
}

bool Executor::Concerns(const Disturbance& disturbance, int instruction) const {
  switch (disturbance.kind) {
    case Disturbance::Kind::kThrottle:
      if (!graph_.options_of(instruction).HasClock()) return false;
      break;
    case Disturbance::Kind::kSlow:
      if (!IsComputation(instruction)) return false;
      break;
    case Disturbance::Kind::kInput: {
      const auto& order = graph_.pp_rank_orders[At(std::max(disturbance.pp_rank, 0))];
      return !order.empty() && order.front() == instruction;
    }
  }
  return disturbance.pp_rank < 0 ||
         graph_.instructions[At(instruction)].pp_rank == disturbance.pp_rank;
}

// If the clock of `option` is above `frequency_mhz`, returns the option with the highest clock up
// to `frequency_mhz`.
int Executor::Throttled(int option_set, int option, double frequency_mhz) const {
  const std::vector<profile::Option>& options = graph_.option_sets[At(option_set)].options;
  if (options[At(option)].frequency_mhz <= frequency_mhz) return option;
  int best = -1;
  int lowest = 0;
  for (int i = 0; At(i) < options.size(); ++i) {
    const double clock = options[At(i)].frequency_mhz;
    if (clock < options[At(lowest)].frequency_mhz) lowest = i;
    if (clock > frequency_mhz) continue;
    if (best < 0 || clock > options[At(best)].frequency_mhz) best = i;
  }
  return best < 0 ? lowest : best;
}

// Applies the presences to the instructions, which begin at `starts`.
Executor::Disturbed Executor::Apply(const std::vector<int>& options,
                                    std::span<const Presence> presences,
                                    const plan::Variation& noise,
                                    const std::vector<Nanoseconds>& starts) const {
  Disturbed disturbed{options, noise, std::vector<bool>(presences.size(), false)};
  plan::Variation& variation = disturbed.variation;
  for (std::size_t p = 0; p < presences.size(); ++p) {
    const Presence& presence = presences[p];
    const Disturbance& disturbance = disturbances_[At(presence.disturbance)];
    for (int i = 0; At(i) < graph_.instructions.size(); ++i) {
      if (!Concerns(disturbance, i)) continue;
      const bool is_input = disturbance.kind == Disturbance::Kind::kInput;
      const Nanoseconds begins = is_input ? 0 : starts[At(i)];  // Input is requested at the start.
      if (begins < presence.from || begins >= presence.until) continue;
      disturbed.noticed[p] = true;
      if (is_input) {
        variation.earliest_starts.resize(graph_.instructions.size(), 0);
        Nanoseconds& start = variation.earliest_starts[At(i)];
        start = std::max(start, ToNanoseconds(disturbance.value));
      } else if (disturbance.kind == Disturbance::Kind::kSlow) {
        variation.time_factors.resize(graph_.instructions.size(), 1);
        variation.time_factors[At(i)] *= disturbance.value;
      } else {
        int& option = disturbed.options[At(i)];
        option = Throttled(graph_.instructions[At(i)].option_set, option, disturbance.value);
      }
    }
  }
  return disturbed;
}

// Checks that the durations fit. Durations without variation fit, because BuildNetwork checks them.
// But a variation multiplies them.
Result<void> Executor::CheckFits(const plan::Variation& variation,
                                 std::span<const Presence> presences) const {
  if (variation.time_factors.empty() && variation.earliest_starts.empty()) return {};
  double longest = delays_;
  for (const Nanoseconds start : variation.earliest_starts) {
    longest = std::max(longest, delays_ + static_cast<double>(start));
  }
  for (std::size_t i = 0; i < graph_.instructions.size(); ++i) {
    const double factor = variation.time_factors.empty() ? 1 : variation.time_factors[i];
    longest += factor * longest_[At(graph_.instructions[i].option_set)];
  }
  if (longest <= static_cast<double>(kLongestRun)) return {};
  return Fail(
      "{}: the durations of an iteration add up to more than 36 years, which 64-bit nanoseconds "
      "cannot represent (slowdowns at the same time multiply: use smaller ones)",
      NamesOf(presences));
}

std::string Executor::NamesOf(std::span<const Presence> presences) const {
  constexpr std::size_t kNamed = 3;
  if (presences.empty()) return "noise";
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, presences.size()); ++i) {
    names += i == 0 ? "" : i + 1 == presences.size() ? " and " : ", ";
    names += NameOf(disturbances_[At(presences[i].disturbance)]);
  }
  if (presences.size() > kNamed) names += fmt::format(" and {} more", presences.size() - kNamed);
  return names;
}

JobClock::JobClock(std::vector<Moment> edges) : edges_(std::move(edges)) {
  std::sort(edges_.begin(), edges_.end(),
            [](const Moment& a, const Moment& b) { return a.iteration < b.iteration; });
}

void JobClock::Begin(Nanoseconds start, Nanoseconds reach) {
  const auto iteration = static_cast<int>(starts_.size());
  starts_.push_back(start);
  for (; next_ < edges_.size() && edges_[next_].iteration <= iteration; ++next_) {
    ahead_.push(StartOf(edges_[next_].iteration) + edges_[next_].after);
  }
  bool has_come = false;
  for (; !ahead_.empty() && ahead_.top() <= start; ahead_.pop()) has_come = true;
  const bool is_cut = !ahead_.empty() && ahead_.top() < start + reach;
  has_edge_.push_back(has_come || is_cut || was_cut_);
  was_cut_ = is_cut;
}

std::optional<Nanoseconds> JobClock::TimeOf(const Moment& moment, int iteration) const {
  if (moment.iteration > iteration) return std::nullopt;
  return StartOf(moment.iteration) + moment.after;
}

bool JobClock::HasCome(const Moment& moment, int iteration) const {
  const auto time = TimeOf(moment, iteration);
  return time && *time <= StartOf(iteration);
}

RunSummary Summarize(const schedule::InstructionGraph& graph, const Execution& execution) {
  const plan::Evaluation& evaluation = execution.run.evaluation;
  RunSummary summary{.time = evaluation.time,
                     .energy_j = evaluation.energy_j,
                     .switches = evaluation.switches,
                     .pp_ranks = std::vector<RunSummary::Rank>(graph.pp_rank_orders.size()),
                     .noticed = execution.noticed};
  for (std::size_t rank = 0; rank < graph.pp_rank_orders.size(); ++rank) {
    for (const int instruction : graph.pp_rank_orders[rank]) {
      summary.pp_ranks[rank].busy += evaluation.durations[At(instruction)];
      summary.pp_ranks[rank].energy_j += evaluation.energies_j[At(instruction)];
    }
    summary.pp_ranks[rank].switches = evaluation.pp_rank_switches[rank];
  }
  return summary;
}

PipelineRuns::PipelineRuns(const plan::Planner& planner,
                           const std::vector<Disturbance>& disturbances, int pipelines,
                           const JobClock& clock)
    : planner_(planner),
      disturbances_(disturbances),
      clock_(clock),
      executor_(planner, disturbances),
      disturbances_of_(At(pipelines)) {
  for (int i = 0; At(i) < disturbances.size(); ++i) {
    disturbances_of_[At(disturbances[At(i)].dp_rank)].push_back(i);
  }
}

int PipelineRuns::AddPlan(std::vector<int> options) {
  const auto next = static_cast<int>(plans_.size());
  const auto [known, is_new] = plan_numbers_.try_emplace(std::move(options), next);
  if (is_new) plans_.push_back(&known->first);
  return known->second;
}

std::vector<Presence> PipelineRuns::PresencesIn(int iteration, int pipeline,
                                                Nanoseconds horizon) const {
  std::vector<Presence> presences;
  const Nanoseconds start = clock_.StartOf(iteration);
  for (const int i : disturbances_of_[At(pipeline)]) {
    const Disturbance& disturbance = disturbances_[At(i)];
    const auto begins = clock_.TimeOf(disturbance.from, iteration);
    if (!begins) continue;
    const Nanoseconds from = std::max<Nanoseconds>(*begins - start, 0);
    if (from > 0 && from >= horizon) continue;
    const auto ends = clock_.TimeOf(disturbance.until, iteration);
    Nanoseconds until = ends ? *ends - start : kForever;
    if (until <= from) continue;
    if (until >= horizon) until = kForever;
    presences.push_back({i, from, until});
  }
  return presences;
}

Result<int> PipelineRuns::StateIn(int iteration, int pipeline, int plan) {
  // The horizon depends on the length of the iteration, which depends on the disturbances up to the
  // horizon.
  Nanoseconds horizon = 0;
  State state{plan, PresencesIn(iteration, pipeline, horizon)};
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const auto number, NumberOf(state));
    const Nanoseconds time = run(number).time;
    if (time <= horizon || !IsDisturbed(pipeline)) return number;
    horizon = time;
    State further{plan, PresencesIn(iteration, pipeline, horizon)};
    if (further == state) return number;
    state = std::move(further);
  }
}

Result<int> PipelineRuns::NumberOf(State state) {
  const auto known = numbers_.find(state);
  if (known != numbers_.end()) {
    reach_ = std::max(reach_, run(known->second).time);
    return known->second;
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto execution, Execute(state));
  runs_.push_back(Summarize(planner_.graph(), execution));
  reach_ = std::max(reach_, runs_.back().time);
  const auto number = static_cast<int>(states_.size());
  states_.push_back(&numbers_.emplace(std::move(state), number).first->first);
  return number;
}

}  // namespace perseus::emulator
