#include "perseus/runtime/client/thinning.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace perseus::client {
namespace {

// ---- The limit ----

// The changes whose tokens were missing: `count` of them from `first` on, around the end of a step.
struct Stretch {
  std::size_t first = 0;
  std::size_t count = 0;
  bool Has(std::size_t at, std::size_t size) const { return (at + size - first) % size < count; }
};

// Why the changes do not keep the limit. Simulates the agent's bucket over two steps. It is full at
// the begin of the first, and if there are not more changes than tokens, every later step is like
// the second.
std::optional<Stretch> FindShortfall(std::span<const TimedChange> changes,
                                     const ChangeLimit& limit) {
  constexpr double kRounding = 1e-9;
  const std::size_t size = changes.size();
  const double step_s = ToSeconds(limit.step_time);
  if (static_cast<double>(size) > limit.per_s * step_s * (1 + kRounding)) return Stretch{0, size};
  const double capacity = std::max(1.0, limit.per_s);
  double tokens = capacity;
  double last_s = 0;
  std::size_t last_full = 0;
  for (std::size_t i = 0; i < 2 * size; ++i) {
    const TimedChange& change = changes[i % size];
    const double at_s = ToSeconds(change.at) + (i < size ? 0 : step_s);
    tokens += (at_s - last_s) * limit.per_s;
    last_s = at_s;
    if (tokens >= capacity) {
      tokens = capacity;
      last_full = i;
    }
    if (change.is_lower && tokens < 1 - kRounding) {
      return Stretch{last_full % size, std::min(size, i - last_full + 1)};
    }
    tokens -= 1;
  }
  return std::nullopt;
}

// ---- The loss ----

// The clocks of a plan as indices, ascending. The default clock is above all others.
class Levels {
 public:
  Levels(const ClockTable& table, std::span<const int> sm_clocks_mhz) : available_(sm_clocks_mhz) {
    for (const PlannedClock& planned : table.order) {
      int& wanted = wanted_[Available(planned.frequency_mhz)];
      wanted = std::max(wanted, planned.frequency_mhz);
    }
    for (const auto& [clock, wanted] : wanted_) clocks_.push_back(clock);
  }

  std::size_t size() const { return clocks_.size(); }
  std::size_t Of(int frequency_mhz) const {
    const auto found = std::ranges::lower_bound(clocks_, Available(frequency_mhz));
    return static_cast<std::size_t>(found - clocks_.begin());
  }
  // What to request for it: a clock that is not below any of the plan that are on this level.
  int Request(std::size_t level) const { return wanted_.at(clocks_[level]); }
  double Mhz(std::size_t level) const {
    if (clocks_[level] != kDefault) return clocks_[level];
    if (!available_.empty()) return available_.back();
    return level > 0 ? clocks_[level - 1] : 1;
  }

 private:
  static constexpr int kDefault = std::numeric_limits<int>::max();
  int Available(int frequency_mhz) const {
    return frequency_mhz == 0 ? kDefault : NearestFaster(available_, frequency_mhz);
  }

  std::span<const int> available_;
  std::map<int, int> wanted_;  // By the GPU's clock: the highest one of the plan.
  std::vector<int> clocks_;
};

// The time and the energy of one kind and chunk at one clock.
struct Point {
  double time_s = 0;
  double energy_j = 0;
};

class LossEstimate {
 public:
  LossEstimate(const ClockTable& table, const Levels& levels)
      : levels_(levels), waiting_power_w_(table.waiting_power_w) {
    std::map<std::pair<Key, std::size_t>, int> counts;
    for (std::size_t i = 0; i < table.order.size(); ++i) {
      const std::size_t level = levels.Of(table.order[i].frequency_mhz);
      Point& point = points_[KeyOf(table.order[i])][level];
      const double count = ++counts[{KeyOf(table.order[i]), level}];
      point.time_s += (ToSeconds(table.costs[i].duration) - point.time_s) / count;
      point.energy_j += (table.costs[i].energy_j - point.energy_j) / count;
    }
  }

  // [level]: what an instruction of the plan loses there (J). 0 up to its own level.
  const std::vector<double>& Of(const PlannedClock& planned) {
    const std::size_t own = levels_.Of(planned.frequency_mhz);
    const auto [found, is_new] = losses_.try_emplace({KeyOf(planned), own});
    if (is_new) found->second = Estimate(points_.at(KeyOf(planned)), own);
    return found->second;
  }

 private:
  using Key = std::pair<InstructionKind, int>;  // The kind and the chunk.
  using Points = std::map<std::size_t, Point>;  // By level.
  static Key KeyOf(const PlannedClock& planned) { return {planned.kind, planned.chunk}; }

  std::vector<double> Estimate(const Points& points, std::size_t own) const {
    std::vector<double> losses(levels_.size(), 0);
    const double here = EffectiveEnergy(points, own);
    // More is never less, whatever the measurements say.
    for (std::size_t level = own + 1; level < levels_.size(); ++level) {
      losses[level] = std::max(losses[level - 1], EffectiveEnergy(points, level) - here);
    }
    return losses;
  }

  double EffectiveEnergy(const Points& points, std::size_t level) const {
    const auto distance = [&](const Points::value_type& entry) {
      return std::abs(levels_.Mhz(entry.first) - levels_.Mhz(level));
    };
    const auto& [known, point] = *std::ranges::min_element(points, {}, distance);
    const double ratio = levels_.Mhz(level) / levels_.Mhz(known);
    if (point.energy_j <= 0) return point.time_s * ratio;
    return point.energy_j * ratio - waiting_power_w_ * point.time_s / ratio;
  }

  const Levels& levels_;
  const double waiting_power_w_;
  std::map<Key, Points> points_;
  std::map<std::pair<Key, std::size_t>, std::vector<double>> losses_;
};

// ---- The method ----

// Instructions in a row, and the level at which they run.
struct Run {
  std::size_t begin = 0;  // The first instruction. The run ends where the next one begins.
  std::size_t level = 0;
  Nanoseconds requested_at = 0;
  std::vector<double> losses;  // [level], of all its instructions.
};

class Thinning {
 public:
  Thinning(const ClockTable& table, std::span<const int> sm_clocks_mhz, const ChangeLimit& limit)
      : table_(table), limit_(limit), levels_(table, sm_clocks_mhz) {
    LossEstimate estimate(table, levels_);
    std::vector<std::size_t> levels;
    for (const PlannedClock& planned : table.order) {
      levels.push_back(levels_.Of(planned.frequency_mhz));
    }
    for (std::size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] == levels[i == 0 ? levels.size() - 1 : i - 1]) continue;
      runs_.push_back({i, levels[i], RequestedAt(i), std::vector<double>(levels_.size(), 0)});
    }
    if (runs_.empty()) return;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      const std::vector<double>& losses = estimate.Of(table.order[i]);
      std::vector<double>& sums = runs_[RunOf(i, runs_)].losses;
      for (std::size_t level = 0; level < sums.size(); ++level) sums[level] += losses[level];
    }
    planned_ = runs_;
  }

  ThinnedPlan Solve() {
    ThinnedPlan thinned;
    thinned.table = table_.number;
    thinned.order = table_.order;
    thinned.changes = static_cast<int>(runs_.size());
    while (const auto stretch = FindShortfall(Changes(), limit_)) Merge(CheapestIn(*stretch));
    if (runs_.size() == planned_.size()) return thinned;
    std::vector<std::size_t> levels;
    for (const Run& planned : planned_) levels.push_back(runs_[RunOf(planned.begin, runs_)].level);
    while (LowerWhatFits(levels)) {
    }
    thinned.skipped = thinned.changes - static_cast<int>(ChangesOf(levels).size());
    for (std::size_t i = 0; i < thinned.order.size(); ++i) {
      thinned.order[i].frequency_mhz = levels_.Request(levels[RunOf(i, planned_)]);
    }
    return thinned;
  }

 private:
  // The clock of an instruction is requested when the previous one ends. If the step is longer than
  // planned, this is taken for a pause at its end: that has the densest changes.
  Nanoseconds RequestedAt(std::size_t instruction) const {
    if (instruction == 0) return 0;
    const PlannedCost& previous = table_.costs[instruction - 1];
    const auto end = static_cast<double>(previous.start + previous.duration);
    const double scale = table_.time <= limit_.step_time ? 1
                                                         : static_cast<double>(limit_.step_time) /
                                                               static_cast<double>(table_.time);
    return std::min(static_cast<Nanoseconds>(end * scale), limit_.step_time - 1);
  }

  // The first instructions of a step may belong to the last run of the step before.
  static std::size_t RunOf(std::size_t instruction, const std::vector<Run>& runs) {
    const auto next = std::ranges::upper_bound(runs, instruction, {}, &Run::begin);
    return next == runs.begin() ? runs.size() - 1
                                : static_cast<std::size_t>(next - runs.begin()) - 1;
  }
  std::size_t Before(std::size_t run) const { return run == 0 ? runs_.size() - 1 : run - 1; }
  std::size_t After(std::size_t run) const { return run + 1 == runs_.size() ? 0 : run + 1; }

  std::vector<TimedChange> Changes() const {
    std::vector<TimedChange> changes;
    if (runs_.size() < 2) return changes;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      changes.push_back({runs_[run].requested_at, runs_[run].level < runs_[Before(run)].level});
    }
    return changes;
  }

  struct Move {
    std::size_t run = 0;
    std::size_t level = 0;
    double loss_per_change = 0;
  };

  // The run that begins with a change that would wait is lower than the one before, so there is
  // always one.
  Move CheapestIn(const Stretch& stretch) const {
    std::optional<Move> best;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      if (!stretch.Has(run, runs_.size()) && !stretch.Has(After(run), runs_.size())) continue;
      const std::size_t own = runs_[run].level;
      const std::size_t before = runs_[Before(run)].level;
      const std::size_t after = runs_[After(run)].level;
      if (before < own && after < own) continue;
      const std::size_t level =
          before < own ? after : (after < own ? before : std::min(before, after));
      const double removed = before == after ? 2 : 1;
      const double loss = (runs_[run].losses[level] - runs_[run].losses[own]) / removed;
      if (!best || loss < best->loss_per_change) best = {run, level, loss};
    }
    return *best;
  }

  void Merge(const Move& move) {
    runs_[move.run].level = move.level;
    const std::size_t after = After(move.run);
    const bool joins_after = runs_[after].level == move.level;
    const bool joins_before = runs_[Before(move.run)].level == move.level;
    const std::size_t before = Before(move.run);
    if (joins_before) AddLosses(before, move.run);
    if (joins_after && after != before) AddLosses(joins_before ? before : move.run, after);
    // The later one first, so that the other one keeps its place.
    std::vector<std::size_t> gone;
    if (joins_before) gone.push_back(move.run);
    if (joins_after && after != before) gone.push_back(after);
    std::ranges::sort(gone, std::ranges::greater());
    for (const std::size_t run : gone) {
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(run));
    }
  }

  // ---- The second part. Its levels are those of the planned runs. ----

  std::vector<TimedChange> ChangesOf(const std::vector<std::size_t>& levels) const {
    std::vector<TimedChange> changes;
    for (std::size_t run = 0; run < levels.size(); ++run) {
      const std::size_t before = levels[run == 0 ? levels.size() - 1 : run - 1];
      if (levels[run] == before) continue;
      changes.push_back({planned_[run].requested_at, levels[run] < before});
    }
    return changes;
  }

  // Begins with the runs that lose most. Whether a run was lowered.
  bool LowerWhatFits(std::vector<std::size_t>& levels) const {
    const auto loss = [&](std::size_t run) { return planned_[run].losses[levels[run]]; };
    std::vector<std::size_t> raised;
    for (std::size_t run = 0; run < levels.size(); ++run) {
      if (levels[run] != planned_[run].level) raised.push_back(run);
    }
    std::ranges::stable_sort(raised, std::ranges::greater(), loss);
    bool is_lowered = false;
    for (const std::size_t run : raised) {
      const std::size_t own = planned_[run].level;
      const std::size_t before = levels[run == 0 ? levels.size() - 1 : run - 1];
      const std::size_t after = levels[run + 1 == levels.size() ? 0 : run + 1];
      const std::size_t now = levels[run];
      for (const std::size_t level :
           {own, std::max(own, std::min(before, after)), std::max(own, std::max(before, after))}) {
        if (level >= levels[run]) continue;
        levels[run] = level;
        if (!FindShortfall(ChangesOf(levels), limit_)) break;
        levels[run] = now;
      }
      is_lowered |= levels[run] != now;
    }
    return is_lowered;
  }

  void AddLosses(std::size_t to, std::size_t from) {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      runs_[to].losses[level] += runs_[from].losses[level];
    }
  }

  const ClockTable& table_;
  const ChangeLimit limit_;
  const Levels levels_;
  std::vector<Run> runs_;     // By their begin.
  std::vector<Run> planned_;  // Before the first merge.
};

}  // namespace

ThinnedPlan Thin(const ClockTable& table, std::span<const int> sm_clocks_mhz,
                 const ChangeLimit& limit) {
  return Thinning(table, sm_clocks_mhz, limit).Solve();
}

bool KeepsLimit(std::span<const TimedChange> changes, const ChangeLimit& limit) {
  return !FindShortfall(changes, limit);
}

}  // namespace perseus::client
