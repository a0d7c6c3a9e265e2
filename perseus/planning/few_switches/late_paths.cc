#include "perseus/planning/few_switches/late_paths.h"

#include <algorithm>

#include "perseus/base/index.h"

namespace perseus::few_switches {
namespace {

constexpr std::size_t kMostPaths = 16;
// With more rows than this on a pp_rank, paths save no time. In a pipeline, a pp_rank has two or
// three rows for each of its stages.
constexpr int kMostRows = 48;
// FindSpeedup tries at most this many faster clocks.
constexpr int kMostClocksFaster = 8;

}  // namespace

LatePaths::LatePaths(const std::vector<RankClocks>& ranks, Nanoseconds stall)
    : ranks_(ranks), stall_(stall), paths_(kMostPaths) {
  std::size_t instructions = 0;
  for (const RankClocks& rank : ranks) {
    first_.push_back(values_);
    values_ += rank.rows_before.size();
    are_worthwhile_ = are_worthwhile_ && rank.row_count <= kMostRows;
    for (const int i : rank.instructions) instructions = std::max(instructions, At(i) + 1);
  }
  is_visited_.assign(instructions, false);
}

void LatePaths::MoveToFront(std::size_t path) {
  const auto begin = paths_.begin();
  const auto place = begin + static_cast<std::ptrdiff_t>(path);
  std::rotate(begin, place, place + 1);
}

void LatePaths::Add(std::span<const int> instructions, Nanoseconds length) {
  if (used_ < paths_.size()) ++used_;
  MoveToFront(used_ - 1);
  Path& path = paths_.front();
  path.length = length;
  path.visits_before.resize(values_);
  const auto mark = [&](bool value) {
    for (const int i : instructions) {
      if (At(i) < is_visited_.size()) is_visited_[At(i)] = value;
    }
  };
  mark(true);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankClocks& rank = ranks_[r];
    const std::size_t rows = At(rank.row_count);
    int* visits = path.visits_before.data() + first_[r];
    std::fill_n(visits, rows, 0);
    for (int p = 0; p < rank.positions(); ++p) {
      std::copy_n(visits, rows, visits + rows);
      visits += rows;
      if (is_visited_[At(rank.instructions[At(p)])]) ++visits[rank.rows[At(p)]];
    }
  }
  mark(false);
}

Nanoseconds LatePaths::LengthAfter(const Path& path, std::span<const Stretch> stretches) const {
  Nanoseconds length = path.length;
  for (const Stretch& stretch : stretches) {
    const RankClocks& rank = ranks_[At(stretch.pp_rank)];
    const std::size_t rows = At(rank.row_count);
    const int* visits = path.visits_before.data() + first_[At(stretch.pp_rank)];
    const int* before = visits + At(stretch.begin) * rows;
    const int* until = visits + At(stretch.end) * rows;
    for (std::size_t row = 0; row < rows; ++row) {
      const Nanoseconds* times = rank.times.data() + row * At(rank.clocks);
      length += (until[row] - before[row]) * (times[stretch.clock] - times[stretch.old_clock]);
    }
    if (stretch.pays == stretch.paid) continue;
    const auto row = At(rank.rows[At(stretch.begin)]);
    if (before[rows + row] > before[row]) length += stretch.pays ? stall_ : -stall_;
  }
  return length;
}

std::optional<Nanoseconds> LatePaths::FindLate(std::span<const Stretch> stretches,
                                               Nanoseconds latest) {
  for (std::size_t i = 0; i < used_; ++i) {
    const Nanoseconds excess = LengthAfter(paths_[i], stretches) - latest;
    if (excess <= 0) continue;
    MoveToFront(i);
    return excess;
  }
  return std::nullopt;
}

void LatePaths::Apply(std::span<const Stretch> stretches) {
  for (std::size_t i = 0; i < used_; ++i) paths_[i].length = LengthAfter(paths_[i], stretches);
}

std::optional<LatePaths::Speedup> LatePaths::FindSpeedup(Nanoseconds excess, double most_j,
                                                         int pp_rank, const Ring& ring,
                                                         std::size_t segment) {
  const RankClocks& rank = ranks_[At(pp_rank)];
  const int* visits_before =
      paths_.front().visits_before.data() + first_[At(pp_rank)];  // [position * row_count + row]
  const int begin = ring[segment].start;
  const int length = LengthOf(ring, segment, rank.positions());
  const std::size_t old_cell = At(ring[segment].clock);
  visits_.clear();
  counts_.clear();
  int visits = 0;
  for (int row = 0; row < rank.row_count; ++row) {
    visits_.push_back(rank.CountRow(visits_before, row, begin, length));
    counts_.push_back(rank.CountRow(row, begin, length));
    visits += visits_.back();
  }
  if (visits == 0) return std::nullopt;
  const int last = std::max(0, ring[segment].clock - kMostClocksFaster);
  for (int clock = ring[segment].clock - 1; clock >= last; --clock) {
    Speedup speedup{clock};
    Nanoseconds gain = 0;
    bool is_measured = true;
    for (std::size_t row = 0; row < visits_.size(); ++row) {
      if (counts_[row] == 0) continue;
      const std::size_t first = row * At(rank.clocks);
      const std::size_t cell = first + At(clock);
      is_measured = is_measured && rank.options[cell] != RankClocks::kUnmeasured;
      speedup.energy_j +=
          counts_[row] * (rank.energies_j[cell] - rank.energies_j[first + old_cell]);
      gain += visits_[row] * (rank.times[first + old_cell] - rank.times[cell]);
    }
    if (speedup.energy_j >= most_j) return std::nullopt;
    if (is_measured && gain >= excess) return speedup;
  }
  return std::nullopt;
}

}  // namespace perseus::few_switches
