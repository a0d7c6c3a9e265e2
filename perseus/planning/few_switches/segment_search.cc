#include "perseus/planning/few_switches/segment_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus::few_switches {
namespace {

// A search ignores a smaller gain (in joules), because it may come from rounded sums.
constexpr double kLeastGain = 1e-9;
// The price of being late, relative to the marginal price of time at the relaxed optimum.
constexpr double kFirstLatePrice = 1;
constexpr double kLastLatePrice = 100;
// Temperatures and prices change after so many moves.
constexpr std::int64_t kMovesPerStage = 64;
// One of so many moves takes a whole ring that was offered.
constexpr int kOfferedPart = 6;

enum Kind : int { kClock, kBoundary, kShift, kSplit, kRemove };

// Joins neighbors of the same clock, and sorts by start.
void Normalize(Ring& ring) {
  // Nearly sorted: a move changes one or two starts.
  for (std::size_t j = 1; j < ring.size(); ++j) {
    for (std::size_t k = j; k > 0 && ring[k].start < ring[k - 1].start; --k) {
      std::swap(ring[k], ring[k - 1]);
    }
  }
  // Keeps the segments whose clock differs from that of the one before.
  int before = ring.back().clock;
  std::size_t kept = 0;
  for (const Segment& segment : ring) {
    if (segment.clock != before) ring[kept++] = segment;
    before = segment.clock;
  }
  if (kept == 0) ring[kept++] = {0, before};
  ring.resize(kept);
}

int Wrap(int position, int positions) {
  const int rest = position % positions;
  return rest < 0 ? rest + positions : rest;
}

// The segment that contains the position.
std::size_t SegmentAt(const Ring& ring, int position) {
  std::size_t found = ring.size() - 1;
  for (std::size_t j = 0; j < ring.size() && ring[j].start <= position; ++j) found = j;
  return ring.front().start <= position ? found : ring.size() - 1;
}

int LengthOf(const Ring& ring, std::size_t segment, int positions) {
  if (ring.size() == 1) return positions;
  const int next = ring[(segment + 1) % ring.size()].start;
  return Wrap(next - ring[segment].start, positions);
}

// Whether a segment of several begins at the position. `next` is the index of the first one that
// starts later.
bool BeginsAt(const Ring& ring, std::size_t next, int position) {
  return ring.size() > 1 && next > 0 && ring[next - 1].start == position;
}

// Outside of the positions from `begin` to the one before `end`, two rings have the same segments.
// A move changes few segments of a ring, and this saves a pass over the others.
struct Difference {
  int begin = 0;
  int end = 0;
  std::size_t first_boundary = 0;  // The first one after `begin`, in both rings.
};

Difference Compare(const Ring& a, const Ring& b, int positions) {
  // The last segment wraps around to the first position.
  if (a.size() == 1 || b.size() == 1 || a.back().clock != b.back().clock) return {0, positions, 0};
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t same = 0;
  while (same < most && a[same] == b[same]) ++same;
  std::size_t same_at_end = 0;
  while (same + same_at_end < most &&
         a[a.size() - 1 - same_at_end] == b[b.size() - 1 - same_at_end])
    ++same_at_end;
  return {same > 0 ? a[same - 1].start : 0,
          same_at_end > 0 ? a[a.size() - same_at_end].start : positions, same};
}

}  // namespace

Ring MakeRing(const std::vector<int>& clocks) {
  Ring ring;
  for (std::size_t p = 0; p < clocks.size(); ++p) ring.push_back({static_cast<int>(p), clocks[p]});
  Normalize(ring);
  return ring;
}

std::vector<int> ClocksOf(const Ring& ring, int positions) {
  std::vector<int> clocks(At(positions), ring.back().clock);
  for (std::size_t j = 0; j < ring.size(); ++j) {
    const int end = j + 1 < ring.size() ? ring[j + 1].start : positions;
    for (int p = ring.size() == 1 ? 0 : ring[j].start; p < end; ++p) clocks[At(p)] = ring[j].clock;
  }
  return clocks;
}

SegmentSearch::SegmentSearch(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                             const RuleChecker& checker, Nanoseconds deadline, double price_w)
    : planner_(planner),
      ranks_(ranks),
      checker_(checker),
      switch_cost_(planner.model().switch_cost),
      deadline_(deadline),
      waiting_j_per_ns_(planner.model().blocking_power_w * planner.pp_ranks() /
                        kNanosecondsPerSecond),
      price_j_per_ns_(std::max(price_w, planner.model().blocking_power_w) / kNanosecondsPerSecond),
      timeline_(planner.graph(), ranks, planner.model()) {
  const schedule::InstructionGraph& graph = planner.graph();
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    const schedule::OptionSet& set = graph.options_of(static_cast<int>(i));
    if (set.HasClock()) continue;
    fixed_energy_j_ +=
        profile::EffectiveEnergy(set.options.front(), planner.model().blocking_power_w);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].positions() > 0) movable_.push_back(static_cast<int>(r));
  }
}

std::vector<int> SegmentSearch::OptionsOf(const std::vector<Ring>& rings) const {
  std::vector<int> options(planner_.graph().instructions.size(), 0);
  for (const int r : movable_) {
    const RankClocks& rank = ranks_[At(r)];
    const std::vector<int> clocks = ClocksOf(rings[At(r)], rank.positions());
    for (int p = 0; p < rank.positions(); ++p) {
      options[At(rank.instructions[At(p)])] = rank.options[rank.Cell(p, clocks[At(p)])];
    }
  }
  return options;
}

bool SegmentSearch::IsMeasured(const std::vector<Ring>& rings) const {
  for (const int r : movable_) {
    const RankClocks& rank = ranks_[At(r)];
    const std::vector<int> clocks = ClocksOf(rings[At(r)], rank.positions());
    for (int p = 0; p < rank.positions(); ++p) {
      if (rank.options[rank.Cell(p, clocks[At(p)])] == RankClocks::kUnmeasured) return false;
    }
  }
  return true;
}

double SegmentSearch::Cost(double instruction_energy_j, Nanoseconds time,
                           Nanoseconds breach) const {
  const Nanoseconds late = std::max<Nanoseconds>(0, time - deadline_) + breach;
  return instruction_energy_j + waiting_j_per_ns_ * static_cast<double>(time) +
         late_j_per_ns_ * static_cast<double>(late);
}

double SegmentSearch::CurrentCost() const {
  return Cost(energy_j_ + timeline_.late_energy_j(), timeline_.time(), breach_);
}

Nanoseconds SegmentSearch::BreachWithProposals() {
  if (!checker_.has_rules()) return 0;
  timeline_.Complete();
  Nanoseconds breach = 0;
  const Moments moments{timeline_.starts(), timeline_.ends(), timeline_.time()};
  for (const int r : movable_) {
    const Ring* ring = &rings_[At(r)];
    for (std::size_t i = 0; i < used_proposals_; ++i) {
      if (proposals_[i].pp_rank == r) ring = &proposals_[i].ring;
    }
    if (ring->size() < 2) continue;
    changing_.clear();
    for (const Segment& segment : *ring) {
      changing_.push_back(ranks_[At(r)].instructions[At(segment.start)]);
    }
    breach += checker_.Breach(r, changing_, moments);
  }
  return breach;
}

void SegmentSearch::Remember() {
  if (timeline_.time() > deadline_ || breach_ > 0) return;
  const double energy_j = energy_j_ + timeline_.late_energy_j() +
                          waiting_j_per_ns_ * static_cast<double>(timeline_.time());
  if (!best_ || energy_j < best_->energy_j - kLeastGain) best_ = Found{rings_, energy_j};
}

void SegmentSearch::Start(std::vector<Ring> rings) {
  rings_ = std::move(rings);
  const schedule::InstructionGraph& graph = planner_.graph();
  std::vector<Nanoseconds> durations;
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    durations.push_back(graph.options_of(static_cast<int>(i)).options.front().time);
  }
  std::vector<int> clock_of(graph.instructions.size(), 0);
  energy_j_ = fixed_energy_j_;
  for (const int r : movable_) {
    const RankClocks& rank = ranks_[At(r)];
    const Ring& ring = rings_[At(r)];
    const std::vector<int> clocks = ClocksOf(ring, rank.positions());
    for (int p = 0; p < rank.positions(); ++p) {
      const std::size_t cell = rank.Cell(p, clocks[At(p)]);
      durations[At(rank.instructions[At(p)])] = rank.times[cell];
      clock_of[At(rank.instructions[At(p)])] = clocks[At(p)];
      energy_j_ += rank.energies_j[cell];
    }
    for (std::size_t j = 0; j < ring.size() && ring.size() > 1; ++j) {
      durations[At(rank.instructions[At(ring[j].start)])] += switch_cost_.stall;
      energy_j_ += switch_cost_.energy_j;
    }
  }
  timeline_.Reset(std::move(durations), std::move(clock_of));
  used_proposals_ = 0;
  breach_ = BreachWithProposals();
  Remember();
}

// 1, 2, 3, ... with falling probability, up to `most`, with a random sign.
int SegmentSearch::SignedStep(int most) {
  int step = 1;
  while (step < most && Below(3) == 0) step = std::min(most, step * 2 + Below(2));
  return Below(2) == 0 ? step : -step;
}

// A sample of about the exponential distribution with mean 1: 64 (u^(-1/64) - 1) tends to -log(u).
// The square root is the same on every machine; the logarithm is not.
double SegmentSearch::Exponential() {
  double root = 1 - Uniform(random_);
  for (int halving = 0; halving < 6; ++halving) root = std::sqrt(root);
  return 64 * (1 / root - 1);
}

// Adds a proposal for the segment of the pp_rank at `place` (a fraction of the iteration). Returns
// false if the move is not possible there.
bool SegmentSearch::ProposeOn(int pp_rank, double place, int kind, int amount, int most_changes) {
  const RankClocks& rank = ranks_[At(pp_rank)];
  const int positions = rank.positions();
  const int position =
      std::min(positions - 1, static_cast<int>(place * static_cast<double>(positions)));
  // An earlier part of the same move may have a proposal for this pp_rank.
  std::size_t index = 0;
  while (index < used_proposals_ && proposals_[index].pp_rank != pp_rank) ++index;
  const bool is_new = index == used_proposals_;
  if (index == proposals_.size()) proposals_.emplace_back();
  Proposal& proposal = proposals_[index];
  if (is_new) {
    proposal.pp_rank = pp_rank;
    proposal.ring = rings_[At(pp_rank)];
  }
  if (!is_new) before_ = proposal.ring;
  const Ring& ring = is_new ? rings_[At(pp_rank)] : before_;
  Ring& next = proposal.ring;
  const std::size_t segment = SegmentAt(ring, position);
  switch (kind) {
    case kClock: {
      const int clock = std::clamp(next[segment].clock + amount, 0, rank.clocks - 1);
      next[segment].clock = clock;
      break;
    }
    case kBoundary:
    case kShift: {
      if (ring.size() < 2) return false;
      // The boundary nearest to the position.
      std::size_t boundary = segment;
      if (2 * Wrap(position - ring[segment].start, positions) >
          LengthOf(ring, segment, positions)) {
        boundary = (segment + 1) % ring.size();
      }
      const std::size_t last = kind == kShift ? (boundary + 1) % ring.size() : boundary;
      const std::size_t before = (boundary + ring.size() - 1) % ring.size();
      // A boundary moves at most to its neighbor. There, a segment disappears.
      const int most =
          LengthOf(ring, amount > 0 ? last : before, positions) - (kind == kShift ? 1 : 0);
      const int step = std::clamp(amount, -most, most);
      next[boundary].start = Wrap(ring[boundary].start + step, positions);
      if (kind == kShift) {
        next[last].start = Wrap(ring[last].start + step, positions);
      } else if (std::abs(step) == most) {
        next.erase(next.begin() + static_cast<std::ptrdiff_t>(step > 0 ? boundary : before));
      }
      break;
    }
    case kSplit: {
      const int length = LengthOf(ring, segment, positions);
      if (length < 2) return false;
      const int part = 1 + std::min(length - 2, std::abs(SignedStep(length)) - 1);
      const int offset = Wrap(position - ring[segment].start, positions);
      const int clock = next[segment].clock + amount;
      if (clock < 0 || clock >= rank.clocks) return false;
      const int old_clock = next[segment].clock;
      const int begin = std::min(offset, length - part);
      const int end = begin + part;
      const int base = ring[segment].start;
      if (begin == 0 && ring.size() > 1) {
        next[segment] = {base, clock};
      } else {
        next.push_back({Wrap(base + begin, positions), clock});
      }
      if (end < length || ring.size() == 1)
        next.push_back({Wrap(base + end, positions), old_clock});
      if (ring.size() == 1) {
        // The old segment is what follows the new one.
        next.erase(next.begin());
      }
      break;
    }
    case kRemove: {
      if (ring.size() < 2) return false;
      const std::size_t neighbor =
          amount > 0 ? (segment + 1) % ring.size() : (segment + ring.size() - 1) % ring.size();
      next[segment].clock = ring[neighbor].clock;
      break;
    }
    default:
      return false;
  }
  Normalize(next);
  if (next.size() > At(std::max(most_changes, 1)) || next == ring) {
    next = ring;
    return false;
  }
  if (is_new) ++used_proposals_;
  return true;
}

void SegmentSearch::Offer(const std::vector<Ring>& rings) {
  offered_.resize(rings.size());
  for (std::size_t r = 0; r < rings.size(); ++r) {
    if (std::ranges::find(offered_[r], rings[r]) == offered_[r].end()) {
      offered_[r].push_back(rings[r]);
    }
  }
}

bool SegmentSearch::ProposeRing(int pp_rank, const Ring& ring, int most_changes) {
  if (ring == rings_[At(pp_rank)] || ring.size() > At(std::max(most_changes, 1))) return false;
  for (std::size_t i = 0; i < used_proposals_; ++i) {
    if (proposals_[i].pp_rank == pp_rank) return false;
  }
  if (used_proposals_ == proposals_.size()) proposals_.emplace_back();
  proposals_[used_proposals_].pp_rank = pp_rank;
  proposals_[used_proposals_].ring = ring;
  ++used_proposals_;
  return true;
}

bool SegmentSearch::Propose(int most_changes) {
  used_proposals_ = 0;
  bool any = ProposePart(most_changes);
  if (Below(10) == 0) any |= ProposePart(most_changes);
  return any;
}

bool SegmentSearch::ProposePart(int most_changes) {
  const auto count = static_cast<int>(movable_.size());
  const int first = Below(count);
  if (!offered_.empty() && Below(kOfferedPart) == 0) {
    const int pp_rank = movable_[At(first)];
    const std::vector<Ring>& offered = offered_[At(pp_rank)];
    return ProposeRing(pp_rank, offered[At(Below(static_cast<int>(offered.size())))], most_changes);
  }
  const Ring& ring = rings_[At(movable_[At(first)])];
  const int positions = ranks_[At(movable_[At(first)])].positions();
  // Short segments matter, too, so a fifth of the moves choose a segment and not a position.
  double place = Uniform(random_);
  if (Below(5) == 0) {
    const Segment& segment = ring[At(Below(static_cast<int>(ring.size())))];
    place = (static_cast<double>(segment.start) + 0.5) / static_cast<double>(positions);
  }
  if (count > 1 && Below(8) == 0) {  // One pp_rank becomes slower, and another one faster.
    const int second = (first + 1 + Below(count - 1)) % count;
    const int amount = SignedStep(4);
    const bool one = ProposeOn(movable_[At(first)], place, kClock, amount, most_changes);
    return ProposeOn(movable_[At(second)], place, kClock, amount > 0 ? -1 : 1, most_changes) || one;
  }
  const int die = most_changes < 2 ? 0 : Below(16);
  const int longest = std::max(1, positions / 6);
  int kind = kClock;
  int amount = 0;
  if (die < 5) {
    amount = SignedStep(Below(4) == 0 ? 16 : 4);
  } else if (die < 11) {
    kind = kBoundary;
    amount = SignedStep(longest);
  } else if (die < 13) {
    kind = kShift;
    amount = SignedStep(longest);
  } else if (die < 15) {
    kind = kSplit;
    amount = SignedStep(16);
  } else {
    kind = kRemove;
    amount = SignedStep(1);
  }
  // The same on the next pp_ranks, because good plans change clocks at about the same place.
  int last = first;
  if (Below(2) == 0) last = std::min(count - 1, first + 1 + Below(count));
  bool any = false;
  for (int r = first; r <= last; ++r) {
    any |= ProposeOn(movable_[At(r)], place, kind, amount, most_changes);
  }
  return any;
}

bool SegmentSearch::SumChanges() {
  stretches_.clear();
  energy_change_j_ = 0;
  gain_ = 0;
  for (std::size_t i = 0; i < used_proposals_; ++i) {
    const Proposal& proposal = proposals_[i];
    const RankClocks& rank = ranks_[At(proposal.pp_rank)];
    const Ring& ring = proposal.ring;
    const Ring& old_ring = rings_[At(proposal.pp_rank)];
    // Stretches between boundaries of either ring. The indices are those of the next boundaries.
    const Difference difference = Compare(ring, old_ring, rank.positions());
    std::size_t next = difference.first_boundary;
    std::size_t old_next = difference.first_boundary;
    if (difference.begin == 0) {
      next = ring.front().start == 0 ? 1 : 0;
      old_next = old_ring.front().start == 0 ? 1 : 0;
    }
    for (int begin = difference.begin; begin < difference.end;) {
      int end = difference.end;
      if (next < ring.size()) end = std::min(end, ring[next].start);
      if (old_next < old_ring.size()) end = std::min(end, old_ring[old_next].start);
      const int clock = (next == 0 ? ring.back() : ring[next - 1]).clock;
      const int old_clock = (old_next == 0 ? old_ring.back() : old_ring[old_next - 1]).clock;
      // Whether the stretch begins with a clock change. The others of its instructions do not.
      const bool pays = BeginsAt(ring, next, begin);
      const bool paid = BeginsAt(old_ring, old_next, begin);
      if (clock != old_clock) {
        stretches_.push_back({proposal.pp_rank, begin, end, clock, pays});
        if (!SumStretch(stretches_.back(), old_clock)) return false;
      } else if (pays != paid && !switch_cost_.IsNone()) {
        stretches_.push_back({proposal.pp_rank, begin, begin + 1, clock, pays});
      }
      if (pays != paid) {
        energy_change_j_ += (pays ? 1 : -1) * switch_cost_.energy_j;
        if (paid) gain_ += switch_cost_.stall;
      }
      if (next < ring.size() && ring[next].start == end) ++next;
      if (old_next < old_ring.size() && old_ring[old_next].start == end) ++old_next;
      begin = end;
    }
  }
  return !stretches_.empty();
}

bool SegmentSearch::SumStretch(const Stretch& stretch, int old_clock) {
  const RankClocks& rank = ranks_[At(stretch.pp_rank)];
  const int* before = rank.rows_before.data() + At(stretch.begin) * At(rank.row_count);
  const int* until = rank.rows_before.data() + At(stretch.end) * At(rank.row_count);
  for (int row = 0; row < rank.row_count; ++row) {
    const int count = until[row] - before[row];
    if (count == 0) continue;
    const std::size_t cell = At(row) * At(rank.clocks) + At(stretch.clock);
    const std::size_t old_cell = At(row) * At(rank.clocks) + At(old_clock);
    if (rank.options[cell] == RankClocks::kUnmeasured) return false;
    energy_change_j_ += count * (rank.energies_j[cell] - rank.energies_j[old_cell]);
    gain_ += count * std::max<Nanoseconds>(0, rank.times[old_cell] - rank.times[cell]);
  }
  return true;
}

bool SegmentSearch::CollectChanges(Nanoseconds latest) {
  changes_.clear();
  const bool has_paths = !timeline_.has_latency();
  if (has_paths) timeline_.PreparePaths();
  // Without a gain, no path gets shorter. With one, each does by at most the gain.
  const Nanoseconds most = latest < Timeline::kNoLimit - gain_ ? latest + gain_ : latest;
  for (const Stretch& stretch : stretches_) {
    const RankClocks& rank = ranks_[At(stretch.pp_rank)];
    Nanoseconds stall = stretch.pays ? switch_cost_.stall : 0;
    Nanoseconds end = 0;  // Of the previous instruction of the stretch, at least.
    for (int p = stretch.begin; p < stretch.end; ++p) {
      const int instruction = rank.instructions[At(p)];
      const Nanoseconds time = rank.times[rank.Cell(p, stretch.clock)] + stall;
      changes_.push_back({instruction, time, stretch.clock});
      stall = 0;
      if (!has_paths) continue;
      end = std::max(end, timeline_.path_before(instruction)) + time;
      if (end + timeline_.path_after(instruction) > most) return false;
    }
  }
  return true;
}

// The longest time with which the changes cost at most `threshold`, or a little more. No limit with
// a latency, because then energies depend on times.
Nanoseconds SegmentSearch::LatestTime(double threshold) const {
  if (timeline_.has_latency()) return Timeline::kNoLimit;
  const double left_j = threshold - Cost(EnergyAfter(), deadline_);
  const double price = waiting_j_per_ns_ + (left_j > 0 ? late_j_per_ns_ : 0);
  constexpr double kFar = 1e15;
  if (price <= 0) return Timeline::kNoLimit;
  return deadline_ + static_cast<Nanoseconds>(std::ceil(std::clamp(left_j / price, -kFar, kFar)));
}

bool SegmentSearch::Decide(double threshold) {
  const Nanoseconds latest = LatestTime(threshold);
  // The iteration cannot take less than the least time.
  if (latest < std::max(timeline_.time() - gain_, planner_.least_time())) return false;
  if (!CollectChanges(latest)) return false;
  const Nanoseconds time = timeline_.Try(changes_, latest);
  const double energy_j = EnergyAfter() + timeline_.late_energy_j();
  bool is_accepted = Cost(energy_j, time) <= threshold;
  if (is_accepted && checker_.has_rules()) {
    breach_after_ = BreachWithProposals();
    is_accepted = Cost(energy_j, time, breach_after_) <= threshold;
  }
  if (!is_accepted) {
    timeline_.Undo();
    return false;
  }
  return true;
}

void SegmentSearch::Accept() {
  timeline_.Keep();
  energy_j_ += energy_change_j_;
  breach_ = checker_.has_rules() ? breach_after_ : 0;
  for (std::size_t i = 0; i < used_proposals_; ++i) {
    Proposal& proposal = proposals_[i];
    std::swap(rings_[At(proposal.pp_rank)], proposal.ring);
  }
  Remember();
}

void SegmentSearch::Anneal(std::vector<Ring> start, int most_changes, const Effort& effort,
                           std::initializer_list<std::stop_token> ends) {
  Start(std::move(start));
  if (movable_.empty()) return;
  random_.state = effort.seed;
  const double instruction_j =
      planner_.baseline().energy_j / static_cast<double>(planner_.graph().instructions.size());
  const std::int64_t stages = std::max<std::int64_t>(1, effort.moves / kMovesPerStage);
  // Falls from `first` to `last`, fast at the beginning. A geometric sequence needs functions whose
  // last bits differ between machines; the inverse of a square needs only division.
  const auto interpolate = [&](double first, double last, std::int64_t stage) {
    const double a = std::sqrt(first / last) - 1;
    const double part = static_cast<double>(stage) / static_cast<double>(stages);
    return first / ((1 + a * part) * (1 + a * part));
  };
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    if (std::ranges::any_of(ends, &std::stop_token::stop_requested)) return;
    const double temperature_j =
        instruction_j * interpolate(effort.first_temperature, effort.last_temperature, stage);
    late_j_per_ns_ = price_j_per_ns_ * kLastLatePrice /
                     (interpolate(kLastLatePrice / kFirstLatePrice, 1, stage));
    cost_ = CurrentCost();
    for (std::int64_t move = 0; move < kMovesPerStage; ++move) {
      if (!Propose(most_changes) || !SumChanges()) continue;
      if (!Decide(cost_ + temperature_j * Exponential())) continue;
      Accept();
      cost_ = CurrentCost();
    }
  }
}

}  // namespace perseus::few_switches
