#include "perseus/simulation/emulator/execution.h"

#include <algorithm>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/plan_file/option_lookup.h"

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

// The option with the highest clock up to `frequency_mhz`, if the clock of `option` is above.
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

// Applies the presences to instructions that begin at `starts`.
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
      const Nanoseconds begins = is_input ? 0 : starts[At(i)];  // Input is requested at the begin.
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

// Without variation, the graph fits, because BuildNetwork checks it. Variations multiply.
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

}  // namespace perseus::emulator
