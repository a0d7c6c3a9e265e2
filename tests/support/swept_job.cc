#include "tests/support/swept_job.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <set>

#include "perseus/planning/plan/evaluation.h"

namespace perseus {
namespace {

constexpr double kTimeNoise = 0.01;
constexpr double kPowerNoise = 0.015;

profile::Profile TrueProfile(const PublishedJob& published, SplitMix64& random,
                             double own_deviation) {
  const profile::Profile read = ReadPublishedProfile(published);
  std::vector<profile::ProfileEntry> entries(read.entries().begin(), read.entries().end());
  if (own_deviation == 0) return profile::Profile(read.name(), {}, entries);
  for (profile::ProfileEntry& entry : entries) {
    const double time = 0.03 * Normal(random);
    const double power = 0.02 * Normal(random);
    for (profile::Option& option : entry.options) {
      const double slower = std::exp(time + own_deviation * Normal(random));
      const double thirstier = std::exp(power + own_deviation * Normal(random));
      option.time = ToNanoseconds(ToSeconds(option.time) * slower);
      option.energy_j *= slower * thirstier;
    }
  }
  return profile::Profile(read.name(), {}, entries);
}

int OptionAt(const schedule::OptionSet& set, double mhz) {
  for (std::size_t i = 0; i < set.options.size(); ++i) {
    if (set.options[i].frequency_mhz == mhz) return static_cast<int>(i);
  }
  std::abort();
}

}  // namespace

SweptJob::SweptJob(const PublishedJob& published, std::uint64_t seed, double own_deviation)
    : random_{seed},
      profile_(TrueProfile(published, random_, own_deviation)),
      job_(SweepJobOf(published, profile_)),
      truth_(job_, profile_) {}

const profile::Option& SweptJob::TruthOf(const profiler::InstructionGroup& group, int mhz) const {
  const profile::ProfileEntry* entry = profile_.Find(group.rank, group.chunk, group.kind);
  return *std::find_if(entry->options.begin(), entry->options.end(),
                       [&](const profile::Option& option) { return option.frequency_mhz == mhz; });
}

std::vector<profiler::MeasuredOption> SweptJob::Measured() const {
  std::vector<profiler::MeasuredOption> options;
  for (const auto& [key, sum] : measured_) {
    const double width = profiler::kStandardErrorsOf95 / std::sqrt(sum.samples);
    options.push_back({key.first, key.second, sum.samples, sum.time_s,
                       width * kTimeNoise * sum.time_s, sum.power_w,
                       width * kPowerNoise * sum.power_w});
  }
  return options;
}

void SweptJob::Run(const profiler::SweepRound& round, profiler::SweepSpent& spent) {
  std::vector<int> options;
  std::map<profiler::InstructionGroup, int> clocks;
  std::map<int, std::set<int>> clocks_of_ranks;
  for (const protocol::KindClock& clock : round.clocks) {
    clocks_of_ranks[clock.pp_rank].insert(clock.frequency_mhz);
    const auto at_a_time = static_cast<int>(clocks_of_ranks[clock.pp_rank].size());
    most_clocks_of_rank_ = std::max(most_clocks_of_rank_, at_a_time);
    const profiler::InstructionGroup group{clock.pp_rank, clock.chunk, clock.kind};
    clocks[group] = clock.frequency_mhz;
    const profile::Option& truth = TruthOf(group, clock.frequency_mhz);
    const int samples = job_.schedule.microbatches * round.steps;
    const double time_s = ToSeconds(truth.time);
    Sum& sum = measured_[{group, clock.frequency_mhz}];
    const double total = sum.samples + samples;
    const auto average = [&](double before, double true_value, double noise) {
      const double now = true_value * (1 + noise / std::sqrt(samples) * Normal(random_));
      return (before * sum.samples + now * samples) / total;
    };
    sum.time_s = average(sum.time_s, time_s, kTimeNoise);
    sum.power_w = average(sum.power_w, truth.energy_j / time_s, kPowerNoise);
    sum.samples += samples;
  }
  const plan::Planner& truth = truth_.planner();
  for (std::size_t i = 0; i < truth.graph().instructions.size(); ++i) {
    const schedule::OptionSet& set = truth.graph().options_of(static_cast<int>(i));
    options.push_back(OptionAt(set, clocks.at({set.pp_rank, set.chunk, set.kind})));
  }
  spent.steps += round.steps;
  spent.seconds +=
      round.steps * ToSeconds(plan::Evaluator(truth.graph(), truth.model()).Evaluate(options).time);
}

SweptJob::Outcome SweptJob::Judge(const plan::Planner& planner, const plan::Plan& plan) const {
  std::vector<int> options;
  for (std::size_t i = 0; i < plan.options.size(); ++i) {
    const schedule::OptionSet& set = planner.graph().options_of(static_cast<int>(i));
    const profile::Option& chosen = set.options[static_cast<std::size_t>(plan.options[i])];
    options.push_back(
        OptionAt(truth_.planner().graph().options_of(static_cast<int>(i)), chosen.frequency_mhz));
  }
  Outcome outcome{truth_.Judge(options), 0, 0, {}};
  std::map<profiler::InstructionGroup, int> counts;
  for (const auto& [key, sum] : measured_) {
    outcome.most_frequencies = std::max(outcome.most_frequencies, ++counts[key.first]);
  }
  return outcome;
}

SweptJob::Outcome SweptJob::Sweep(const profiler::SweepBudget& budget) {
  measured_.clear();
  most_clocks_of_rank_ = 0;
  profiler::SweepSpent spent;
  while (true) {
    const profiler::SweepRound round =
        profiler::ChooseRound(job_, budget, Measured(), spent).value();
    if (round.is_over()) break;
    Run(round, spent);
  }
  const plan::Planner planner =
      profiler::PlannerOf(job_, profiler::PlanningProfile(job_, Measured()).value()).value();
  Outcome outcome = Judge(planner, profiler::PlanWith(planner, {}, job_.change_limit).value());
  outcome.spent = spent;
  outcome.most_clocks_of_rank = most_clocks_of_rank_;
  return outcome;
}

SweptJob::Outcome SweptJob::EvenlySpaced(int frequencies) const {
  std::vector<profile::ProfileEntry> entries;
  for (const profile::ProfileEntry& entry : profile_.entries()) {
    entries.push_back({entry.pp_rank, entry.chunk, entry.kind, {}});
    const std::size_t last = entry.options.size() - 1;
    for (int i = 0; i < frequencies; ++i) {
      const double place = static_cast<double>(last) * i / (frequencies - 1);
      entries.back().options.push_back(entry.options[static_cast<std::size_t>(std::lround(place))]);
    }
  }
  plan::Planner planner =
      *profiler::PlannerOf(job_, profile::Profile("evenly spaced", {}, std::move(entries)));
  plan::Plan plan = planner.PlanFor(planner.baseline().time).value();
  return Judge(planner, plan);
}

}  // namespace perseus
