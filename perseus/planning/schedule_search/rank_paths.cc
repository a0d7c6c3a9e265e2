#include "perseus/planning/schedule_search/rank_paths.h"

#include <algorithm>

#include "perseus/base/index.h"

namespace perseus::schedule_search {
namespace {

using schedule::Instruction;
using Kind = InstructionKind;

// The number of `instructions` up to and with that of the same stage and microbatch.
int CountUpTo(const std::vector<Instruction>& instructions, const Instruction& other) {
  const auto found = std::ranges::find_if(instructions, [&](const Instruction& one) {
    return one.stage == other.stage && one.microbatch == other.microbatch;
  });
  return static_cast<int>(found - instructions.begin()) + 1;
}

// Continues the numbers beyond the last forward, and before the first wgrad.
void Extend(RankPaths& paths) {
  const auto all = static_cast<int>(paths.forwards.size());
  for (std::size_t i = 1; i < paths.backwards.size(); ++i) {
    int& forwards = paths.forwards_before[i];
    if (forwards == all) forwards = std::max(forwards, paths.forwards_before[i - 1] + 1);
  }
  for (std::size_t i = paths.backwards.size(); i-- > 1;) {
    int& weights = paths.weights_before[i - 1];
    if (weights == 0) weights = std::min(weights, paths.weights_before[i] - 1);
  }
}

RankPaths PathsOfRank(const std::vector<Instruction>& order) {
  RankPaths paths;
  bool follows_recompute = false;
  for (const Instruction& instruction : order) {
    switch (instruction.kind) {
      case Kind::kForward:
        paths.forwards.push_back(instruction);
        break;
      case Kind::kBackwardWeight:
        paths.weights.push_back(instruction);
        break;
      case Kind::kRecompute:
        follows_recompute = true;
        break;
      default:
        paths.backwards.push_back(instruction);
        paths.has_recompute.push_back(follows_recompute);
        paths.forwards_before.push_back(static_cast<int>(paths.forwards.size()));
        paths.weights_before.push_back(static_cast<int>(paths.weights.size()));
        follows_recompute = false;
    }
  }
  int dgrads = 0;
  for (const Instruction& backward : paths.backwards) {
    const int least = paths.least_forwards_before.empty() ? 0 : paths.least_forwards_before.back();
    paths.least_forwards_before.push_back(std::max(least, CountUpTo(paths.forwards, backward)));
    // The k-th wgrad belongs to the k-th dgrad in all generated schedules. A file may differ: then
    // the order that it has is the only one that is known to run.
    paths.most_weights_before.push_back(dgrads);
    dgrads += backward.kind == Kind::kBackwardInput ? 1 : 0;
  }
  Extend(paths);
  return paths;
}

}  // namespace

std::vector<RankPaths> PathsOf(const schedule::Schedule& schedule) {
  std::vector<RankPaths> paths;
  for (const auto& order : schedule.pp_ranks) paths.push_back(PathsOfRank(order));
  return paths;
}

void SetOrders(std::span<const RankPaths> paths, schedule::Schedule& schedule) {
  schedule.pp_ranks.clear();
  for (const RankPaths& rank : paths) {
    std::vector<Instruction> order;
    auto forward = rank.forwards.begin();
    auto weight = rank.weights.begin();
    for (std::size_t i = 0; i < rank.backwards.size(); ++i) {
      const auto weights_end = rank.weights.begin() + std::max(0, rank.weights_before[i]);
      order.insert(order.end(), weight, weights_end);
      weight = weights_end;
      const auto forwards_end =
          rank.forwards.begin() +
          std::min(static_cast<int>(rank.forwards.size()), rank.forwards_before[i]);
      order.insert(order.end(), forward, forwards_end);
      forward = forwards_end;
      const Instruction& backward = rank.backwards[i];
      if (rank.has_recompute[i]) {
        order.push_back({Kind::kRecompute, backward.stage, backward.microbatch});
      }
      order.push_back(backward);
    }
    order.insert(order.end(), weight, rank.weights.end());
    schedule.pp_ranks.push_back(std::move(order));
  }
}

bool Fit(RankPaths& paths, const MemoryLimit& limit, int pp_rank) {
  const std::int64_t most = limit.of_pp_rank[At(pp_rank)];
  const auto all = static_cast<int>(paths.forwards.size());
  std::int64_t held = 0;
  int forwards = 0;
  int weights = 0;
  const auto run_weight = [&] {
    held -= limit.size_of_stage[At(paths.weights[At(weights++)].stage)];
  };
  for (std::size_t i = 0; i < paths.backwards.size(); ++i) {
    const int least = paths.least_forwards_before[i];
    const int most_weights = paths.most_weights_before[i];
    while (weights < std::min(paths.weights_before[i], most_weights)) run_weight();
    const int wanted = std::min(all, std::max({paths.forwards_before[i], least, forwards}));
    while (forwards < wanted) {
      const auto size = limit.size_of_stage[At(paths.forwards[At(forwards)].stage)];
      if (held + size <= most) {
        held += size;
        ++forwards;
      } else if (forwards < least && weights < most_weights) {
        run_weight();
      } else {
        break;
      }
    }
    if (forwards < least) return false;
    int& before = paths.forwards_before[i];
    if (forwards < all || before < all) before = forwards;
    // A limit that delays forwards shortens what goes on after the last one, too.
    if (i > 0) before = std::min(before, std::max(all, paths.forwards_before[i - 1] + 1));
    if (weights > 0 || paths.weights_before[i] > 0) paths.weights_before[i] = weights;
    if (paths.backwards[i].kind == Kind::kBackward) {
      held -= limit.size_of_stage[At(paths.backwards[i].stage)];
    }
  }
  // Backwards need all of their forwards, so none is left after the last one.
  return true;
}

}  // namespace perseus::schedule_search
