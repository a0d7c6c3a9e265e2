#include "perseus/planning/few_switches/timeline.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::few_switches {
namespace {

// Cuts are this many instructions apart. A try visits all instructions from the last change to the
// next cut, and all dependencies over this cut.
constexpr int kCutDistance = 8;

// Copies the values of the instructions from `first` to `end` - 1. Does nothing if `from` is empty
// (some values exist only with a latency).
template <typename Value>
void Copy(int first, int end, const std::vector<Value>& from, std::vector<Value>& to) {
  if (from.empty()) return;
  std::copy(from.begin() + first, from.begin() + end, to.begin() + first);
}

}  // namespace

Timeline::Timeline(const schedule::InstructionGraph& graph) {
  const std::size_t instructions = graph.instructions.size();
  std::vector<std::vector<Before>> before(instructions);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    before[At(dependency.to)].push_back({dependency.from, dependency.delay});
  }
  awaited_.resize(instructions);
  for (std::size_t i = 0; i < instructions; ++i) {
    const Before none{static_cast<int>(instructions), 0};
    awaited_[i].first = !before[i].empty() ? before[i][0] : none;
    awaited_[i].second = before[i].size() > 1 ? before[i][1] : none;
    awaited_[i].rest_begin = static_cast<int>(more_awaited_.size());
    for (std::size_t b = 2; b < before[i].size(); ++b) more_awaited_.push_back(before[i][b]);
    awaited_[i].rest_end = static_cast<int>(more_awaited_.size());
  }
  MakeCuts(graph);
}

// Cut c is before instruction (c + 1) * kCutDistance. The last cut is at the end of the iteration.
void Timeline::MakeCuts(const schedule::InstructionGraph& graph) {
  const auto instructions = static_cast<int>(graph.instructions.size());
  const int cuts = (instructions + kCutDistance - 1) / kCutDistance;
  std::vector<Crossing> all;
  std::vector<bool> is_awaited(graph.instructions.size(), false);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    is_awaited[At(dependency.from)] = true;
    all.push_back({dependency.from, dependency.to, dependency.delay});
  }
  for (int i = 0; i < instructions; ++i) {
    if (!is_awaited[At(i)]) all.push_back({i, instructions, 0});
  }
  const auto first_cut = [](const Crossing& c) { return c.from / kCutDistance; };
  const auto end_cut = [&](const Crossing& c) {
    return c.to == instructions ? cuts : c.to / kCutDistance;
  };
  first_crossing_.assign(At(cuts) + 1, 0);
  for (const Crossing& crossing : all) {
    for (int cut = first_cut(crossing); cut < end_cut(crossing); ++cut) {
      ++first_crossing_[At(cut) + 1];
    }
  }
  std::partial_sum(first_crossing_.begin(), first_crossing_.end(), first_crossing_.begin());
  crossings_.resize(At(first_crossing_.back()));
  std::vector<int> slot(first_crossing_.begin(), first_crossing_.end() - 1);
  for (const Crossing& crossing : all) {
    for (int cut = first_cut(crossing); cut < end_cut(crossing); ++cut) {
      crossings_[At(slot[At(cut)]++)] = crossing;
    }
  }
}

Timeline::Timeline(const schedule::InstructionGraph& graph, const std::vector<RankClocks>& ranks,
                   const plan::ExecutionModel& model)
    : Timeline(graph) {
  if (model.switch_latency == 0) return;
  ranks_ = &ranks;
  latency_ = model.switch_latency;
  blocking_power_w_ = model.blocking_power_w;
  places_.resize(graph.instructions.size());
  last_affected_.resize(graph.instructions.size());
  std::iota(last_affected_.begin(), last_affected_.end(), 0);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (int p = 0; p < ranks[r].positions(); ++p) {
      places_[At(ranks[r].instructions[At(p)])] = {
          .pp_rank = static_cast<int>(r),
          .position = p,
          .previous = p > 0 ? ranks[r].instructions[At(p - 1)] : kNone};
    }
    // An instruction can run at a clock at most `latency` after the end of the last instruction
    // that requested this clock.
    for (int p = 0; p < ranks[r].positions(); ++p) {
      int last = p;
      for (Nanoseconds time = 0; time < latency_ && last + 1 < ranks[r].positions();) {
        ++last;
        const auto& options = graph.options_of(ranks[r].instructions[At(last)]).options;
        time += std::ranges::min_element(options, {}, &profile::Option::time)->time;
      }
      last_affected_[At(ranks[r].instructions[At(p)])] = ranks[r].instructions[At(last)];
    }
  }
}

void Timeline::Reset(std::vector<Nanoseconds> durations, std::vector<int> clocks) {
  durations_ = std::move(durations);
  clocks_ = std::move(clocks);
  starts_.assign(durations_.size(), 0);
  ends_.assign(durations_.size() + 1, 0);
  clocks_after_.assign(places_.size(), {});
  late_energies_j_.assign(places_.size(), 0);
  paths_from_.assign(durations_.size() + 1, 0);
  paths_after_.assign(durations_.size() + 1, 0);
  next_.assign(durations_.size() + 1, 0);
  kept_starts_.assign(durations_.size(), 0);
  kept_ends_ = kept_starts_;
  kept_clocks_after_ = clocks_after_;
  kept_late_energies_j_ = late_energies_j_;
  undo_.clear();
  first_tried_ = 0;
  computed_ = 0;
  Complete();
  time_ = TimeOverCut(static_cast<int>(first_crossing_.size()) - 2);
  Keep();
}

void Timeline::Clock::Settle(Nanoseconds now) {
  if (pending == kNone || switch_time > now) return;
  running = pending;
  pending = kNone;
}

// Most instructions run at the clock of the previous one, and need only this.
Nanoseconds Timeline::RunLate(int instruction, Nanoseconds start) {
  const std::size_t i = At(instruction);
  late_energies_j_[i] = i > 0 ? late_energies_j_[i - 1] : 0;
  const Place& place = places_[i];
  if (place.pp_rank == kNone) return durations_[i];
  if (place.previous == kNone || clocks_after_[At(place.previous)].running == clocks_[i]) {
    clocks_after_[i] = {.running = clocks_[i]};
    return durations_[i];
  }
  return RunAfterOtherClock(instruction, start);
}

Nanoseconds Timeline::RunAfterOtherClock(int instruction, Nanoseconds start) {
  const std::size_t i = At(instruction);
  const Place& place = places_[i];
  const RankClocks& rank = (*ranks_)[At(place.pp_rank)];
  const int wanted = clocks_[i];
  const std::size_t cell = rank.Cell(place.position, wanted);
  const Nanoseconds stall = durations_[i] - rank.times[cell];
  const Nanoseconds begin = start + stall;
  Clock& clock = clocks_after_[i];
  clock = clocks_after_[At(place.previous)];
  // The GPU requests the clock when the previous instruction ends.
  if (clock.pending != wanted) clock.switch_time = ends_[At(place.previous)] + latency_;
  clock.pending = wanted;
  clock.Settle(begin);
  if (clock.running == wanted) return durations_[i];
  const Late late = RunMixed(rank, place.position, clock, begin);
  late_energies_j_[i] += late.energy_j - rank.energies_j[cell];
  clock.Settle(begin + late.duration);
  return stall + late.duration;
}

// The time and energy of an instruction that begins before its clock takes effect.
Timeline::Late Timeline::RunMixed(const RankClocks& rank, int position, const Clock& clock,
                                  Nanoseconds begin) const {
  const std::size_t previous = rank.Cell(position, clock.running);
  const std::size_t wanted = rank.Cell(position, clock.pending);
  const Nanoseconds wait = clock.switch_time - begin;
  const bool is_same = rank.times[previous] == rank.times[wanted] &&
                       rank.energies_j[previous] == rank.energies_j[wanted];
  if (is_same || wait >= rank.times[previous])
    return {rank.times[previous], rank.energies_j[previous]};
  const double done = static_cast<double>(wait) / static_cast<double>(rank.times[previous]);
  const double rest = std::ceil((1 - done) * static_cast<double>(rank.times[wanted]));
  const Nanoseconds duration = wait + static_cast<Nanoseconds>(rest);
  // Effective energies leave out the blocking power. So add the blocking energy to each part, mix
  // the two parts, and then subtract the blocking energy for the whole duration.
  const auto waiting_j = [&](Nanoseconds time) { return blocking_power_w_ * ToSeconds(time); };
  return {duration, done * (rank.energies_j[previous] + waiting_j(rank.times[previous])) +
                        (1 - done) * (rank.energies_j[wanted] + waiting_j(rank.times[wanted])) -
                        waiting_j(duration)};
}

template <typename Visit>
void Timeline::ForEachAwaited(int instruction, Visit visit) const {
  const Awaited& awaited = awaited_[At(instruction)];
  visit(awaited.first);
  visit(awaited.second);
  for (int b = awaited.rest_begin; b < awaited.rest_end; ++b) visit(more_awaited_[At(b)]);
}

Nanoseconds Timeline::StartOf(int instruction) const {
  Nanoseconds start = 0;
  ForEachAwaited(instruction, [&](const Before& before) {
    start = std::max(start, ends_[At(before.instruction)] + before.delay);
  });
  return start;
}

template <bool kHasLatency>
void Timeline::ComputeNext() {
  const std::size_t i = At(computed_);
  starts_[i] = StartOf(computed_);
  ends_[i] = starts_[i] + (kHasLatency ? RunLate(computed_, starts_[i]) : durations_[i]);
  ++computed_;
}

template <bool kHasLatency>
Nanoseconds Timeline::ComputeWithin(int end, Nanoseconds gain, Nanoseconds limit) {
  while (computed_ < end) {
    const std::size_t i = At(computed_);
    ComputeNext<kHasLatency>();
    const Nanoseconds least = ends_[i] + paths_after_[i] - gain;
    if (least > limit) return least;
  }
  return 0;
}

void Timeline::Complete() {
  const auto end = static_cast<int>(durations_.size());
  if (!has_latency()) {
    while (computed_ < end) ComputeNext<false>();
    return;
  }
  while (computed_ < end) ComputeNext<true>();
  time_ = TimeOverCut(static_cast<int>(first_crossing_.size()) - 2);
}

void Timeline::ComputePathsAfter() {
  std::fill(paths_after_.begin(), paths_after_.end(), 0);
  std::fill(next_.begin(), next_.end(), static_cast<int>(durations_.size()));
  for (std::size_t i = durations_.size(); i-- > 0;) {
    paths_from_[i] = paths_after_[i] + ends_[i] - starts_[i];
    ForEachAwaited(static_cast<int>(i), [&](const Before& before) {
      Nanoseconds& path = paths_after_[At(before.instruction)];
      if (paths_from_[i] + before.delay <= path) return;
      path = paths_from_[i] + before.delay;
      next_[At(before.instruction)] = static_cast<int>(i);
    });
  }
  paths_are_valid_ = true;
}

Timeline::Longest Timeline::LongestOver(int cut) const {
  Longest longest;
  for (int c = first_crossing_[At(cut)]; c < first_crossing_[At(cut) + 1]; ++c) {
    const Crossing& crossing = crossings_[At(c)];
    const Nanoseconds time =
        ends_[At(crossing.from)] + crossing.delay + paths_from_[At(crossing.to)];
    if (time >= longest.time) longest = {&crossing, time};
  }
  return longest;
}

std::vector<int> Timeline::TraceLatePath() const {
  int from = computed_ - 1;
  int to = next_[At(from)];
  if (late_cut_ != kNone) {
    const Crossing& crossing = *LongestOver(late_cut_).crossing;
    from = crossing.from;
    to = crossing.to;
  }
  std::vector<int> path;
  for (; from >= 0; from = Critical(from)) path.push_back(from);
  std::ranges::reverse(path);
  const auto end = static_cast<int>(durations_.size());
  for (; to < end; to = next_[At(to)]) path.push_back(to);
  return path;
}

// Returns which awaited instruction decides the start of `instruction` (its end plus the delay is
// the latest), or kNone.
int Timeline::Critical(int instruction) const {
  int critical = kNone;
  ForEachAwaited(instruction, [&](const Before& before) {
    if (before.instruction == static_cast<int>(durations_.size())) return;
    if (ends_[At(before.instruction)] + before.delay < starts_[At(instruction)]) return;
    critical = before.instruction;
  });
  return critical;
}

Nanoseconds Timeline::LengthOf(std::span<const int> path) const {
  Nanoseconds length = 0;
  for (std::size_t i = 0; i < path.size(); ++i) {
    length += durations_[At(path[i])];
    if (i == 0) continue;
    Nanoseconds delay = 0;
    ForEachAwaited(path[i], [&](const Before& before) {
      if (before.instruction == path[i - 1]) delay = std::max(delay, before.delay);
    });
    length += delay;
  }
  return length;
}

Nanoseconds Timeline::Try(const std::vector<Change>& changes, Nanoseconds limit) {
  PreparePaths();
  const auto instructions = static_cast<int>(durations_.size());
  undo_.clear();
  first_tried_ = instructions;
  int last = 0;
  Nanoseconds gain = 0;
  for (const Change& change : changes) {
    Nanoseconds& duration = durations_[At(change.instruction)];
    undo_.push_back({change.instruction, duration, change.clock});
    gain += std::max<Nanoseconds>(0, duration - change.duration);
    duration = change.duration;
    if (latency_ > 0) std::swap(clocks_[At(change.instruction)], undo_.back().clock);
    first_tried_ = std::min(first_tried_, change.instruction);
    last =
        std::max(last, latency_ > 0 ? last_affected_[At(change.instruction)] : change.instruction);
  }
  const int cut = last / kCutDistance;
  const int end = std::min(instructions, (cut + 1) * kCutDistance);
  computed_ = first_tried_;
  const Nanoseconds least = has_latency() ? ComputeWithin<true>(end, gain, limit)
                                          : ComputeWithin<false>(end, gain, limit);
  late_cut_ = least > limit ? kNone : cut;
  time_ = least > limit ? least : TimeOverCut(cut);
  return time_;
}

void Timeline::Keep() {
  Complete();
  const auto end = static_cast<int>(durations_.size());
  Copy(first_tried_, end, starts_, kept_starts_);
  Copy(first_tried_, end, ends_, kept_ends_);
  Copy(first_tried_, end, clocks_after_, kept_clocks_after_);
  Copy(first_tried_, end, late_energies_j_, kept_late_energies_j_);
  kept_time_ = time_;
  paths_are_valid_ = false;
}

void Timeline::Undo() {
  Copy(first_tried_, computed_, kept_starts_, starts_);
  Copy(first_tried_, computed_, kept_ends_, ends_);
  Copy(first_tried_, computed_, kept_clocks_after_, clocks_after_);
  Copy(first_tried_, computed_, kept_late_energies_j_, late_energies_j_);
  for (std::size_t i = undo_.size(); i-- > 0;) {
    durations_[At(undo_[i].instruction)] = undo_[i].duration;
    if (latency_ > 0) clocks_[At(undo_[i].instruction)] = undo_[i].clock;
  }
  time_ = kept_time_;
  computed_ = static_cast<int>(durations_.size());
}

}  // namespace perseus::few_switches
