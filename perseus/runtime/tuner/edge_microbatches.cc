#include "perseus/runtime/tuner/edge_microbatches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "perseus/base/statistics.h"

namespace perseus::tuner {
namespace {

// The first, the last, and three between them.
constexpr std::size_t kLeastMicrobatches = 5;

using Durations = std::vector<double>;  // In seconds, in the order in which they ran.

// Returns the durations by chunk and kind. Empty if the step has several clocks.
std::map<std::pair<int, InstructionKind>, Durations> DurationsAtOneClock(
    const protocol::RanStep& step) {
  std::map<std::pair<int, InstructionKind>, Durations> durations;
  std::vector<protocol::RanInstruction> instructions = step.instructions;
  std::ranges::stable_sort(instructions, {}, &protocol::RanInstruction::begin);
  for (const protocol::RanInstruction& ran : instructions) {
    if (ran.frequency_mhz != instructions.front().frequency_mhz) return {};
    if (!IsComputation(ran.kind) || ran.duration <= 0) continue;
    durations[{ran.chunk, ran.kind}].push_back(ToSeconds(ran.duration));
  }
  return durations;
}

std::string Describe(const EdgeDifference& one) {
  return fmt::format("the {} {} of pp_rank {}{} takes {:.1f} % {} ({:.3g} ms)",
                     one.group.edge == Edge::kFirst ? "first" : "last", Name(one.group.kind),
                     one.group.pp_rank,
                     one.group.chunk == 0 ? "" : fmt::format(" on chunk {}", one.group.chunk),
                     100 * std::abs(one.relative), one.relative < 0 ? "less" : "more",
                     1000 * std::abs(one.difference_s));
}

}  // namespace

void EdgeMicrobatches::Add(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                           std::int64_t first, std::int64_t last) {
  for (const protocol::RankId& name : ranks) {
    for (std::int64_t number = first; number <= last; ++number) {
      const protocol::RanStep* step = logs.ranks().at(name).Find(number);
      // Waiting for other ranks (FSDP) differs from microbatch to microbatch.
      if (step == nullptr || step->IsDisturbed() || !step->waits.empty()) continue;
      for (const auto& [what, durations] : DurationsAtOneClock(*step)) {
        if (durations.size() < kLeastMicrobatches) continue;
        const double others_s = Median({durations.begin() + 1, durations.end() - 1});
        const auto add = [&, chunk = what.first, kind = what.second](Edge edge, double seconds) {
          Samples& samples = samples_[{name.pp_rank, chunk, kind, edge}];
          samples.relative.push_back(seconds / others_s - 1);
          samples.seconds.push_back(seconds - others_s);
        };
        add(Edge::kFirst, durations.front());
        add(Edge::kLast, durations.back());
      }
    }
  }
}

std::vector<EdgeDifference> EdgeMicrobatches::Differences() const {
  std::vector<EdgeDifference> differences;
  for (const auto& [group, samples] : samples_) {
    if (samples.relative.size() < kLeastSamples) continue;
    const double relative = Median(samples.relative);
    const double error = kErrorOfMedian * kDeviationsOfMad *
                         MedianDeviation(samples.relative, relative) /
                         std::sqrt(static_cast<double>(samples.relative.size()));
    if (std::abs(relative) < std::max(kLeastDifference, kCertain * error)) continue;
    differences.push_back(
        {group, relative, Median(samples.seconds), static_cast<int>(samples.relative.size())});
  }
  return differences;
}

std::string DescribeEdges(std::vector<EdgeDifference> differences) {
  if (differences.empty()) return {};
  std::ranges::stable_sort(differences, std::ranges::greater(),
                           [](const EdgeDifference& one) { return std::abs(one.difference_s); });
  constexpr std::size_t kMostNamed = 4;
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(differences.size(), kMostNamed); ++i) {
    named.push_back(Describe(differences[i]));
  }
  if (differences.size() > kMostNamed) {
    named.push_back(fmt::format("and {} more", differences.size() - kMostNamed));
  }
  return fmt::format(
      "microbatches at the edges of a step differ from the others: {}; plans use one time for all "
      "microbatches of a kind",
      fmt::join(named, ", "));
}

}  // namespace perseus::tuner
