#include "perseus/planning/schedule_search/moves.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::schedule_search {
namespace {

// Adds `step` to the counts in the window. Counts never fall from one backward to the next. So if
// counts become smaller, they limit the counts before the window. If they become larger, they raise
// the counts after it.
void Shift(std::vector<int>& counts, std::size_t begin, std::size_t end, int step) {
  for (std::size_t i = begin; i < end; ++i) counts[i] += step;
  if (begin == end) return;
  for (std::size_t i = 0; i < begin; ++i) counts[i] = std::min(counts[i], counts[begin]);
  for (std::size_t i = end; i < counts.size(); ++i) {
    counts[i] = std::max(counts[i], counts[end - 1]);
  }
}

// The numbers that the move changes, and their allowed range. The numbers do not depend on each
// other.
struct Independent {
  std::vector<int>& numbers;
  int least;
  int most;
};

Independent NumbersOf(Move::What what, const Choices& choices, RankPaths& rank) {
  if (what == Move::What::kRecomputes) return {rank.has_recompute, 0, 1};
  return {rank.weight_delay, choices.has_full_backwards ? kFullBackward : 0,
          static_cast<int>(2 * rank.backwards.size())};
}

using schedule::Instruction;
using Kind = InstructionKind;

// Computes the values that depend on the two sequences.
void Derive(RankPaths& paths) {
  const auto places = [](const std::vector<Instruction>& instructions) {
    std::map<std::pair<int, int>, int> place_of;  // [stage, microbatch]
    for (const Instruction& one : instructions) {
      place_of.emplace(std::pair(one.stage, one.microbatch), static_cast<int>(place_of.size()));
    }
    return place_of;
  };
  const auto forward_of = places(paths.forwards);
  const auto backward_of = places(paths.backwards);
  paths.least_forwards_before.clear();
  int least = 0;
  for (const Instruction& backward : paths.backwards) {
    least = std::max(least, forward_of.at({backward.stage, backward.microbatch}) + 1);
    paths.least_forwards_before.push_back(least);
  }
  paths.backward_of_forward.clear();
  for (const Instruction& forward : paths.forwards) {
    paths.backward_of_forward.push_back(backward_of.at({forward.stage, forward.microbatch}));
  }
}

// Lets the numbers continue to rise after the last forward.
void Extend(RankPaths& paths) {
  const auto all = static_cast<int>(paths.forwards.size());
  for (std::size_t i = 1; i < paths.backwards.size(); ++i) {
    int& forwards = paths.forwards_before[i];
    if (forwards == all) forwards = std::max(forwards, paths.forwards_before[i - 1] + 1);
  }
}

// The half steps of a pp_rank are numbered. 2 * i is before the forwards that come before backward
// i. 2 * i + 1 is directly before backward i. The last half step is after the last backward.
int FirstStepOfWeight(int backward) { return 2 * (backward + 1); }

RankPaths PathsOfRank(const std::vector<Instruction>& order) {
  RankPaths paths;
  std::map<std::pair<int, int>, int> backward_of;  // [stage, microbatch]
  bool follows_recompute = false;
  bool follows_forward = false;
  for (const Instruction& instruction : order) {
    const auto backwards = static_cast<int>(paths.backwards.size());
    const std::pair microbatch(instruction.stage, instruction.microbatch);
    switch (instruction.kind) {
      case Kind::kForward:
        paths.forwards.push_back(instruction);
        follows_forward = true;
        break;
      case Kind::kBackwardWeight: {
        const int backward = backward_of.at(microbatch);
        const int step = 2 * backwards + (follows_forward ? 1 : 0);
        paths.weight_delay[At(backward)] = step - FirstStepOfWeight(backward);
        break;
      }
      case Kind::kRecompute:
        follows_recompute = true;
        break;
      default:
        backward_of[microbatch] = backwards;
        paths.backwards.push_back({Kind::kBackward, instruction.stage, instruction.microbatch});
        paths.forwards_before.push_back(static_cast<int>(paths.forwards.size()));
        paths.weight_delay.push_back(kFullBackward);
        paths.has_recompute.push_back(follows_recompute ? 1 : 0);
        follows_recompute = false;
        follows_forward = false;
    }
  }
  Derive(paths);
  Extend(paths);
  return paths;
}

// The wgrads of a pp_rank by their half step: [step] -> backwards.
std::vector<std::vector<int>> WeightsByStep(const RankPaths& paths) {
  const auto backwards = static_cast<int>(paths.backwards.size());
  std::vector<std::vector<int>> weights(At(2 * backwards + 1));
  for (int i = 0; i < backwards; ++i) {
    const int delay = paths.weight_delay[At(i)];
    if (delay < 0) continue;
    weights[At(std::min(FirstStepOfWeight(i) + delay, 2 * backwards))].push_back(i);
  }
  return weights;
}

// Walks along the order of a pp_rank, counts the activations that it holds, and makes the order
// fit.
class Fitting {
 public:
  Fitting(RankPaths& paths, const MemoryLimit& limit, int pp_rank, GivesWay gives_way)
      : paths_(paths),
        limit_(limit),
        most_(limit.of_pp_rank[At(pp_rank)]),
        gives_way_(gives_way),
        weights_(WeightsByStep(paths)) {}

  bool Run() {
    for (int i = 0; i < static_cast<int>(paths_.backwards.size()); ++i) {
      RunWeights(2 * i);
      if (!RunForwards(i)) return false;
      RunWeights(2 * i + 1);
      held_ += RecomputedBefore(i);
      if (paths_.weight_delay[At(i)] < 0) held_ -= SizeOf(paths_.backwards[At(i)]);
    }
    return true;
  }

 private:
  std::int64_t SizeOf(const Instruction& instruction) const {
    return limit_.size_of_stage[At(instruction.stage)];
  }

  std::int64_t SizeOfForward(int forward) const {
    return SizeOf(paths_.forwards[At(forward)]) -
           RecomputedBefore(paths_.backward_of_forward[At(forward)]);
  }

  // Returns the memory that a recompute directly before this backward adds.
  std::int64_t RecomputedBefore(int backward) const {
    if (limit_.kept_of_stage.empty() || paths_.has_recompute[At(backward)] == 0) return 0;
    const std::size_t stage = At(paths_.backwards[At(backward)].stage);
    return limit_.size_of_stage[stage] - limit_.kept_of_stage[stage];
  }

  // Runs the wgrads of a half step.
  void RunWeights(int step) {
    for (const int backward : weights_[At(step)]) held_ -= SizeOf(paths_.backwards[At(backward)]);
    weights_[At(step)].clear();
  }

  // Runs a pending wgrad of backwards before `backward` now, if there is one.
  bool RunPendingWeight(int backward) {
    for (std::size_t step = At(2 * backward + 1); step < weights_.size(); ++step) {
      std::vector<int>& weights = weights_[step];
      // The wgrads of a step are in the order of their backwards. Later steps also have wgrads of
      // later backwards.
      if (weights.empty() || weights.front() >= backward) continue;
      held_ -= SizeOf(paths_.backwards[At(weights.front())]);
      paths_.weight_delay[At(weights.front())] =
          std::max(0, 2 * backward - FirstStepOfWeight(weights.front()));
      weights.erase(weights.begin());
      return true;
    }
    return false;
  }

  bool RunForwards(int backward) {
    const auto all = static_cast<int>(paths_.forwards.size());
    int& before = paths_.forwards_before[At(backward)];
    const int least = paths_.least_forwards_before[At(backward)];
    const int wanted = std::min(all, std::max({before, least, forwards_}));
    const std::int64_t most = most_ - RecomputedBefore(backward);
    while (forwards_ < wanted || held_ > most) {
      const std::int64_t size = forwards_ < wanted ? SizeOfForward(forwards_) : 0;
      if (held_ + size <= most) {
        held_ += size;
        ++forwards_;
        continue;
      }
      const bool may_wait =
          forwards_ >= least && held_ <= most && gives_way_ == GivesWay::kForwards;
      if (may_wait || !RunPendingWeight(backward)) break;
    }
    if (forwards_ < least || held_ > most) return false;
    if (forwards_ < all || before < all) before = forwards_;
    // If the limit delays forwards, the numbers after the last forward become smaller, too.
    if (backward > 0) {
      before = std::min(before, std::max(all, paths_.forwards_before[At(backward - 1)] + 1));
    }
    return true;
  }

  RankPaths& paths_;
  const MemoryLimit& limit_;
  const std::int64_t most_;
  const GivesWay gives_way_;
  std::vector<std::vector<int>> weights_;  // [half step] backwards whose wgrads have not run.
  std::int64_t held_ = 0;
  int forwards_ = 0;
};

}  // namespace

Choices ChoicesOf(const profile::Profile& profile) {
  const auto has_everywhere = [&](InstructionKind kind) {
    for (int pp_rank = 0; pp_rank < profile.pp_ranks(); ++pp_rank) {
      for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
        if (profile.Find(pp_rank, chunk, kind) == nullptr) return false;
      }
    }
    return true;
  };
  return {.has_full_backwards = has_everywhere(InstructionKind::kBackward),
          .has_split_backwards = has_everywhere(InstructionKind::kBackwardInput) &&
                                 has_everywhere(InstructionKind::kBackwardWeight),
          .has_recomputes = has_everywhere(InstructionKind::kRecompute),
          .has_chunks = profile.chunks() > 1};
}

std::string DescribeGaps(const profile::Profile& profile) {
  std::string text;
  for (const InstructionKind kind :
       {InstructionKind::kBackward, InstructionKind::kBackwardInput,
        InstructionKind::kBackwardWeight, InstructionKind::kRecompute}) {
    bool is_somewhere = false;
    std::string missing;
    for (int pp_rank = 0; pp_rank < profile.pp_ranks(); ++pp_rank) {
      for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
        const bool has = profile.Find(pp_rank, chunk, kind) != nullptr;
        is_somewhere = is_somewhere || has;
        if (has || !missing.empty()) continue;
        missing = fmt::format("stage {}", pp_rank);
        if (profile.chunks() > 1) missing += fmt::format(", chunk {}", chunk);
      }
    }
    if (!is_somewhere || missing.empty()) continue;
    text += fmt::format(
        "No schedule has {} instructions, because {} lacks those of {} (profile all stages).\n",
        Name(kind), profile.name(), missing);
  }
  return text;
}

std::vector<Move> MovesFor(int pp_ranks, int parts, const Choices& choices) {
  std::vector<Move> moves;
  const auto add = [&](Move::What what, int length) {
    for (int half = 0; half < (parts == 1 ? 1 : 2); ++half) {
      for (int first = 0; first < parts - half; ++first) {
        for (int pp_rank = 0; pp_rank + length <= pp_ranks; ++pp_rank) {
          for (const int step : {1, -1}) {
            moves.push_back({.what = what,
                             .first_pp_rank = pp_rank,
                             .pp_ranks = length,
                             .parts = parts,
                             .first = first,
                             .half_later = half == 1,
                             .step = step});
          }
        }
      }
    }
  };
  for (int length = pp_ranks; length >= 1; length = length == 1 ? 0 : (length + 1) / 2) {
    add(Move::What::kForwards, length);
    if (choices.has_split_backwards) add(Move::What::kWeights, length);
    if (choices.has_recomputes) add(Move::What::kRecomputes, length);
    if (choices.has_chunks) {
      add(Move::What::kForwardStages, length);
      add(Move::What::kBackwardStages, length);
    }
  }
  return moves;
}

bool Apply(const Move& move, const MemoryLimit& limit, const Choices& choices,
           std::vector<RankPaths>& paths) {
  bool has_changed = false;
  for (int i = 0; i < move.pp_ranks; ++i) {
    const int pp_rank = move.first_pp_rank + i;
    RankPaths& rank = paths[At(pp_rank)];
    const RankPaths before = rank;
    const std::size_t all = rank.backwards.size();
    const std::size_t offset = move.half_later ? all / At(move.parts) / 2 : 0;
    const std::size_t begin = std::min(all, all * At(move.first) / At(move.parts) + offset);
    const std::size_t end = std::min(all, all * At(move.first + 1) / At(move.parts) + offset);
    if (move.what == Move::What::kForwards) {
      Shift(rank.forwards_before, begin, end, move.step);
    } else if (move.what == Move::What::kForwardStages ||
               move.what == Move::What::kBackwardStages) {
      const Sequence sequence =
          move.what == Move::What::kForwardStages ? Sequence::kForwards : Sequence::kBackwards;
      SwapStages(rank, sequence, begin, end, move.step > 0);
    } else {
      const auto [numbers, least, most] = NumbersOf(move.what, choices, rank);
      for (std::size_t k = begin; k < end; ++k) {
        numbers[k] = std::clamp(numbers[k] + move.step, least, most);
      }
    }
    const GivesWay gives_way =
        move.what == Move::What::kForwards ? GivesWay::kWeights : GivesWay::kForwards;
    if (!Fit(rank, limit, pp_rank, gives_way)) return false;
    has_changed = has_changed || rank != before;
  }
  return has_changed;
}

std::vector<RankPaths> PathsOf(const schedule::Schedule& schedule) {
  std::vector<RankPaths> paths;
  for (const auto& order : schedule.pp_ranks) paths.push_back(PathsOfRank(order));
  return paths;
}

void SetOrders(std::span<const RankPaths> paths, schedule::Schedule& schedule) {
  schedule.pp_ranks.clear();
  for (const RankPaths& rank : paths) {
    const std::vector<std::vector<int>> weights = WeightsByStep(rank);
    std::vector<Instruction> order;
    const auto add = [&](Kind kind, const Instruction& backward) {
      order.push_back({kind, backward.stage, backward.microbatch});
    };
    const auto add_weights = [&](std::size_t step) {
      for (const int backward : weights[step]) {
        add(Kind::kBackwardWeight, rank.backwards[At(backward)]);
      }
    };
    std::size_t forwards = 0;
    for (std::size_t i = 0; i < rank.backwards.size(); ++i) {
      add_weights(2 * i);
      const std::size_t until = std::min(rank.forwards.size(), At(rank.forwards_before[i]));
      for (; forwards < until; ++forwards) order.push_back(rank.forwards[forwards]);
      add_weights(2 * i + 1);
      const Instruction& backward = rank.backwards[i];
      if (rank.has_recompute[i] != 0) add(Kind::kRecompute, backward);
      add(rank.weight_delay[i] < 0 ? Kind::kBackward : Kind::kBackwardInput, backward);
    }
    add_weights(2 * rank.backwards.size());
    schedule.pp_ranks.push_back(std::move(order));
  }
}

void SwapStages(RankPaths& paths, Sequence sequence, std::size_t begin, std::size_t end,
                bool later_first) {
  auto& instructions = sequence == Sequence::kForwards ? paths.forwards : paths.backwards;
  for (std::size_t i = begin; i + 1 < end; ++i) {
    const int here = instructions[i].stage;
    const int next = instructions[i + 1].stage;
    if (here == next || (here < next) != later_first) continue;
    std::swap(instructions[i], instructions[i + 1]);
    ++i;  // Each instruction moves by one place.
  }
  Derive(paths);
}

bool Fit(RankPaths& paths, const MemoryLimit& limit, int pp_rank, GivesWay gives_way) {
  return Fitting(paths, limit, pp_rank, gives_way).Run();
}

}  // namespace perseus::schedule_search
