#include "perseus/planning/few_switches/timeline.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::few_switches {
namespace {

// Copies the values of the instructions from `first` on. Values that only a latency needs may be
// absent.
template <typename Value>
void CopyFrom(int first, const std::vector<Value>& from, std::vector<Value>& to) {
  if (from.empty()) return;
  std::copy(from.begin() + first, from.end(), to.begin() + first);
}

}  // namespace

Timeline::Timeline(const schedule::InstructionGraph& graph)
    : first_before_(graph.instructions.size() + 1, 0), before_(graph.dependencies.size()) {
  std::vector<bool> is_awaited(graph.instructions.size(), false);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    ++first_before_[At(dependency.to) + 1];
    is_awaited[At(dependency.from)] = true;
  }
  std::partial_sum(first_before_.begin(), first_before_.end(), first_before_.begin());
  std::vector<int> slot(first_before_.begin(), first_before_.end() - 1);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    before_[At(slot[At(dependency.to)]++)] = {dependency.from, dependency.delay};
  }
  for (std::size_t i = 0; i < is_awaited.size(); ++i) {
    if (!is_awaited[i]) last_.push_back(static_cast<int>(i));
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
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (int p = 0; p < ranks[r].positions(); ++p) {
      places_[At(ranks[r].instructions[At(p)])] = {static_cast<int>(r), p};
    }
  }
}

void Timeline::Reset(std::vector<Nanoseconds> durations, std::vector<int> clocks) {
  durations_ = std::move(durations);
  clocks_ = std::move(clocks);
  starts_.assign(durations_.size(), 0);
  ends_.assign(durations_.size(), 0);
  clocks_after_.assign(places_.size(), {});
  late_energies_j_.assign(places_.size(), 0);
  time_ = UpdateFrom(0);
  undo_.clear();
  first_tried_ = 0;
  kept_ends_.clear();
  Keep();
}

void Timeline::Clock::Settle(Nanoseconds now) {
  if (pending == kNone || switch_time > now) return;
  running = pending;
  pending = kNone;
}

Nanoseconds Timeline::RunLate(int instruction, Nanoseconds start) {
  const std::size_t i = At(instruction);
  late_energies_j_[i] = i > 0 ? late_energies_j_[i - 1] : 0;
  const Place& place = places_[i];
  if (place.pp_rank == kNone) return durations_[i];
  const RankClocks& rank = (*ranks_)[At(place.pp_rank)];
  const int wanted = clocks_[i];
  const std::size_t cell = rank.Cell(place.position, wanted);
  const Nanoseconds stall = durations_[i] - rank.times[cell];
  const Nanoseconds begin = start + stall;
  Clock& clock = clocks_after_[i];
  clock = place.position > 0 ? clocks_after_[At(rank.instructions[At(place.position) - 1])]
                             : Clock{.running = wanted};
  if (clock.running == wanted) {
    clock.pending = kNone;
  } else {
    // The request comes when the previous instruction ends.
    if (clock.pending != wanted) clock.switch_time = clock.previous_end + latency_;
    clock.pending = wanted;
    clock.Settle(begin);
  }
  Nanoseconds end = start + durations_[i];
  if (clock.running != wanted) {
    const Late late = RunMixed(rank, place.position, clock, begin);
    late_energies_j_[i] += late.energy_j - rank.energies_j[cell];
    end = begin + late.duration;
  }
  clock.previous_end = end;
  clock.Settle(end);
  return end - start;
}

// An instruction that begins before the switch to its clock takes effect.
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
  // The mix of the energies, and effective: without the blocking power.
  const auto waiting_j = [&](Nanoseconds time) { return blocking_power_w_ * ToSeconds(time); };
  return {duration, done * (rank.energies_j[previous] + waiting_j(rank.times[previous])) +
                        (1 - done) * (rank.energies_j[wanted] + waiting_j(rank.times[wanted])) -
                        waiting_j(duration)};
}

Nanoseconds Timeline::StartOf(int instruction, const std::vector<Nanoseconds>& ends) const {
  Nanoseconds start = 0;
  for (int b = first_before_[At(instruction)]; b < first_before_[At(instruction) + 1]; ++b) {
    const Before& before = before_[At(b)];
    start = std::max(start, ends[At(before.instruction)] + before.delay);
  }
  return start;
}

Nanoseconds Timeline::UpdateFrom(int instruction) {
  for (std::size_t i = At(instruction); i < durations_.size(); ++i) {
    starts_[i] = StartOf(static_cast<int>(i), ends_);
    ends_[i] =
        starts_[i] + (latency_ > 0 ? RunLate(static_cast<int>(i), starts_[i]) : durations_[i]);
  }
  Nanoseconds time = 0;
  for (const int last : last_) time = std::max(time, ends_[At(last)]);
  return time;
}

void Timeline::ComputeTails() {
  tails_.assign(durations_.size(), 0);
  for (std::size_t i = durations_.size(); i-- > 0;) {
    const Nanoseconds from_start = tails_[i] + durations_[i];
    for (int b = first_before_[i]; b < first_before_[i + 1]; ++b) {
      const Before& before = before_[At(b)];
      Nanoseconds& tail = tails_[At(before.instruction)];
      tail = std::max(tail, from_start + before.delay);
    }
  }
  tails_are_valid_ = true;
}

Nanoseconds Timeline::TimeAtLeast(const std::vector<Change>& changes) {
  if (!tails_are_valid_) ComputeTails();
  Nanoseconds time = time_;
  // Changes of one pp_rank come in its order. Whether the next change follows the last one directly
  // does not matter: a pp_rank runs one instruction at a time, and the chain uses only changed
  // ones.
  Nanoseconds chain = 0;
  int previous = -1;
  for (const Change& change : changes) {
    const Nanoseconds start = starts_[At(change.instruction)];
    const bool follows =
        previous >= 0 && previous < change.instruction &&
        std::any_of(before_.begin() + first_before_[At(change.instruction)],
                    before_.begin() + first_before_[At(change.instruction) + 1],
                    [&](const Before& before) { return before.instruction == previous; });
    chain = std::max(start, follows ? chain : 0) + change.duration;
    time = std::max(time, chain + tails_[At(change.instruction)]);
    previous = change.instruction;
  }
  return time;
}

Nanoseconds Timeline::Try(const std::vector<Change>& changes) {
  undo_.clear();
  first_tried_ = static_cast<int>(durations_.size());
  for (const Change& change : changes) {
    Nanoseconds& duration = durations_[At(change.instruction)];
    undo_.push_back({change.instruction, duration, change.clock});
    duration = change.duration;
    if (latency_ > 0) std::swap(clocks_[At(change.instruction)], undo_.back().clock);
    first_tried_ = std::min(first_tried_, change.instruction);
  }
  time_ = UpdateFrom(first_tried_);
  return time_;
}

void Timeline::Keep() {
  if (kept_ends_.size() != ends_.size()) {
    kept_starts_ = starts_;
    kept_ends_ = ends_;
    kept_clocks_after_ = clocks_after_;
    kept_late_energies_j_ = late_energies_j_;
  } else {
    CopyFrom(first_tried_, starts_, kept_starts_);
    CopyFrom(first_tried_, ends_, kept_ends_);
    CopyFrom(first_tried_, clocks_after_, kept_clocks_after_);
    CopyFrom(first_tried_, late_energies_j_, kept_late_energies_j_);
  }
  kept_time_ = time_;
  tails_are_valid_ = false;
}

void Timeline::Undo() {
  CopyFrom(first_tried_, kept_starts_, starts_);
  CopyFrom(first_tried_, kept_ends_, ends_);
  CopyFrom(first_tried_, kept_clocks_after_, clocks_after_);
  CopyFrom(first_tried_, kept_late_energies_j_, late_energies_j_);
  for (std::size_t i = undo_.size(); i-- > 0;) {
    durations_[At(undo_[i].instruction)] = undo_[i].duration;
    if (latency_ > 0) clocks_[At(undo_[i].instruction)] = undo_[i].clock;
  }
  time_ = kept_time_;
}

}  // namespace perseus::few_switches
