#include "perseus/planning/few_switches/ring_moves.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace perseus::few_switches {
namespace {

// One move in this many takes an offered ring.
constexpr int kOfferedPart = 6;
// One move in this many consists of two moves.
constexpr int kDoublePart = 10;
// The maximum distance between two clocks in one move.
constexpr int kMostClockStep = 16;
// A move may change a pp_rank to a new period together with another pp_rank. Then its time may be
// too long by this fraction of its time before the change. Small moves correct this later.
constexpr double kPeriodTolerance = 0.002;

struct Sum {
  Nanoseconds time = 0;
  double energy_j = 0;
};

// The time and energy of `length` positions from `begin` on, all at one clock. The positions may
// wrap around. The energy is infinite if one of them was not measured at the clock.
Sum SumOf(const RankClocks& rank, int begin, int length, int clock) {
  Sum sum;
  for (int row = 0; row < rank.row_count; ++row) {
    const int count = rank.CountRow(row, begin, length);
    if (count == 0) continue;
    const std::size_t cell = At(row) * At(rank.clocks) + At(clock);
    sum.time += count * rank.times[cell];
    sum.energy_j += rank.options[cell] == RankClocks::kUnmeasured
                        ? std::numeric_limits<double>::infinity()
                        : count * rank.energies_j[cell];
  }
  return sum;
}

// Compares the clocks at which the positions take at most `ratio` of their time at `clock` (plus a
// tolerance). Returns the one of least energy, or `clock` if no clock is fast enough.
int ClockFor(const RankClocks& rank, int begin, int length, int clock, double ratio) {
  const double most =
      static_cast<double>(SumOf(rank, begin, length, clock).time) * (ratio + kPeriodTolerance);
  int best = clock;
  double best_j = std::numeric_limits<double>::infinity();
  const int last = std::min(rank.clocks - 1, clock + kMostClockStep);
  for (int other = std::max(0, clock - kMostClockStep); other <= last; ++other) {
    const Sum sum = SumOf(rank, begin, length, other);
    if (static_cast<double>(sum.time) > most || sum.energy_j >= best_j) continue;
    best = other;
    best_j = sum.energy_j;
  }
  return best;
}

int PositionAt(double place, int positions) {
  return std::min(positions - 1, static_cast<int>(place * static_cast<double>(positions)));
}

// Moves the boundary nearest to the position, or both ends of the segment at that boundary. A
// boundary moves at most to the neighboring boundary. There, the segment between them disappears.
// `next` is a copy of `ring`.
bool MoveBoundary(const Ring& ring, Ring& next, int position, int positions, int amount,
                  bool both_ends) {
  if (ring.size() < 2) return false;
  std::size_t boundary = SegmentAt(ring, position);
  if (2 * Wrap(position - ring[boundary].start, positions) > LengthOf(ring, boundary, positions)) {
    boundary = After(ring, boundary);
  }
  const std::size_t last = both_ends ? After(ring, boundary) : boundary;
  const std::size_t before = Before(ring, boundary);
  const int most = LengthOf(ring, amount > 0 ? last : before, positions) - (both_ends ? 1 : 0);
  const int step = std::clamp(amount, -most, most);
  next[boundary].start = Wrap(ring[boundary].start + step, positions);
  if (both_ends) {
    next[last].start = Wrap(ring[last].start + step, positions);
  } else if (std::abs(step) == most) {
    next.erase(next.begin() + static_cast<std::ptrdiff_t>(step > 0 ? boundary : before));
  }
  return true;
}

}  // namespace

RingMoves::RingMoves(const std::vector<RankClocks>& ranks) : ranks_(ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].positions() > 0) movable_.push_back(static_cast<int>(r));
  }
}

void RingMoves::Offer(const std::vector<Ring>& rings) {
  offered_.resize(rings.size());
  for (std::size_t r = 0; r < rings.size(); ++r) {
    if (std::ranges::find(offered_[r], rings[r]) == offered_[r].end()) {
      offered_[r].push_back(rings[r]);
    }
  }
}

// Returns a random step 1, 2, 3, ... up to `most`. Larger steps are less likely.
int RingMoves::Step(int most) {
  int step = 1;
  while (step < most && Below(3) == 0) step = std::min(most, step * 2 + Below(2));
  return step;
}

int RingMoves::SignedStep(int most) {
  const int step = Step(most);
  return Below(2) == 0 ? step : -step;
}

std::size_t RingMoves::IndexOf(int pp_rank) const {
  std::size_t index = 0;
  while (index < used_ && proposals_[index].pp_rank != pp_rank) ++index;
  return index;
}

const Ring& RingMoves::RingOf(const std::vector<Ring>& rings, int pp_rank) const {
  const std::size_t index = IndexOf(pp_rank);
  return index < used_ ? proposals_[index].ring : rings[At(pp_rank)];
}

std::span<RingMoves::Proposal> RingMoves::AddClock(const std::vector<Ring>& rings, int pp_rank,
                                                   std::size_t segment, int clock) {
  const std::size_t index = IndexOf(pp_rank);
  if (index == proposals_.size()) proposals_.emplace_back();
  Proposal& proposal = proposals_[index];
  if (index == used_) {
    ++used_;
    proposal.pp_rank = pp_rank;
    proposal.ring = rings[At(pp_rank)];
  }
  proposal.ring[segment].clock = clock;
  Normalize(proposal.ring);
  return {proposals_.data(), used_};
}

std::span<RingMoves::Proposal> RingMoves::Propose(const std::vector<Ring>& rings,
                                                  int most_changes) {
  used_ = 0;
  ProposePart(rings, most_changes);
  if (Below(kDoublePart) == 0) ProposePart(rings, most_changes);
  return {proposals_.data(), used_};
}

void RingMoves::ProposePart(const std::vector<Ring>& rings, int most_changes) {
  const auto count = static_cast<int>(movable_.size());
  const int first = Below(count);
  const int lead = movable_[At(first)];
  if (!offered_.empty() && Below(kOfferedPart) == 0) {
    const std::vector<Ring>& offered = offered_[At(lead)];
    return ProposeRing(rings, lead, offered[At(Below(static_cast<int>(offered.size())))],
                       most_changes);
  }
  const Ring& ring = rings[At(lead)];
  const int positions = ranks_[At(lead)].positions();
  // A random position is rarely in a short segment. So a fifth of the moves choose a random segment
  // instead.
  Move move{.place = Uniform(random_)};
  if (Below(5) == 0) {
    const Segment& segment = ring[At(Below(static_cast<int>(ring.size())))];
    move.place = (static_cast<double>(segment.start) + 0.5) / static_cast<double>(positions);
  }
  if (count > 1 && Below(8) == 0) {  // One pp_rank becomes slower, and another one faster.
    const int second = (first + 1 + Below(count - 1)) % count;
    move.amount = SignedStep(4);
    ProposeOn(rings, lead, move, most_changes);
    move.amount = move.amount > 0 ? -1 : 1;
    return ProposeOn(rings, movable_[At(second)], move, most_changes);
  }
  const int die = most_changes < 2 ? 0 : Below(20);
  const int longest = std::max(1, positions / 6);
  if (die < 5) {
    move.amount = SignedStep(Below(4) == 0 ? kMostClockStep : 4);
  } else if (die < 13) {
    move.kind = die < 11 ? Kind::kBoundary : Kind::kShift;
    move.amount = SignedStep(longest);
  } else if (die < 17) {
    move.kind = Kind::kSplit;
    move.amount = SignedStep(kMostClockStep);
  } else if (die < 18) {
    move.kind = Kind::kRemove;
    move.amount = SignedStep(1);
  } else {
    return ProposeMix(rings, first, move.place, most_changes);
  }
  // Repeats the move on the next pp_ranks: good plans change clocks at about the same place.
  const int last = Below(2) == 0 ? std::min(count - 1, first + 1 + Below(count)) : first;
  for (int r = first; r <= last; ++r) ProposeOn(rings, movable_[At(r)], move, most_changes);
}

void RingMoves::ProposeRing(const std::vector<Ring>& rings, int pp_rank, const Ring& ring,
                            int most_changes) {
  if (ring == rings[At(pp_rank)] || ring.size() > MostSegments(most_changes)) return;
  if (IndexOf(pp_rank) < used_) return;
  if (used_ == proposals_.size()) proposals_.emplace_back();
  proposals_[used_].pp_rank = pp_rank;
  proposals_[used_].ring = ring;
  ++used_;
}

// Does nothing if the move is impossible on this pp_rank.
void RingMoves::ProposeOn(const std::vector<Ring>& rings, int pp_rank, const Move& move,
                          int most_changes) {
  const RankClocks& rank = ranks_[At(pp_rank)];
  const int position = PositionAt(move.place, rank.positions());
  // An earlier part of the same move may have a proposal for this pp_rank.
  const std::size_t index = IndexOf(pp_rank);
  const bool is_new = index == used_;
  if (index == proposals_.size()) proposals_.emplace_back();
  Proposal& proposal = proposals_[index];
  if (is_new) {
    proposal.pp_rank = pp_rank;
    proposal.ring = rings[At(pp_rank)];
  } else {
    scratch_ = proposal.ring;
  }
  const Ring& ring = is_new ? rings[At(pp_rank)] : scratch_;
  Ring& next = proposal.ring;
  const std::size_t segment = SegmentAt(ring, position);
  bool is_possible = true;
  switch (move.kind) {
    case Kind::kClock:
      next[segment].clock = std::clamp(next[segment].clock + move.amount, 0, rank.clocks - 1);
      break;
    case Kind::kBoundary:
    case Kind::kShift:
      is_possible = MoveBoundary(ring, next, position, rank.positions(), move.amount,
                                 move.kind == Kind::kShift);
      break;
    case Kind::kSplit:
      is_possible = Split(next, position, move.amount, rank, most_changes);
      break;
    case Kind::kRemove: {
      const bool is_next = move.amount > 0;
      next[segment].clock = ring[is_next ? After(ring, segment) : Before(ring, segment)].clock;
      break;
    }
  }
  if (is_possible) Normalize(next);
  if (!is_possible || next.size() > MostSegments(most_changes) || next == ring) {
    next = ring;
    return;
  }
  if (is_new) ++used_;
}

// A part of the segment at the position gets another clock.
bool RingMoves::Split(Ring& next, int position, int amount, const RankClocks& rank,
                      int most_changes) {
  const int positions = rank.positions();
  const std::size_t segment = SegmentAt(next, position);
  const int length = LengthOf(next, segment, positions);
  const auto [base, old_clock] = next[segment];
  const int clock = old_clock + amount;
  if (length < 2 || clock < 0 || clock >= rank.clocks) return false;
  const int part = std::min(length - 1, Step(length));
  const int begin = std::min(Wrap(position - base, positions), length - part);
  const int end = begin + part;
  const bool is_whole = next.size() == 1;
  if (begin == 0 || is_whole) {
    next[segment] = {Wrap(base + begin, positions), clock};
  } else {
    next.push_back({Wrap(base + begin, positions), clock});
  }
  if (end < length || is_whole) next.push_back({Wrap(base + end, positions), old_clock});
  Normalize(next);
  // In a full ring, other segments disappear to make room.
  for (int tries = 0; tries < 3 && next.size() > MostSegments(most_changes); ++tries) {
    const auto removed = At(Below(static_cast<int>(next.size())));
    if (removed != SegmentAt(next, position)) RemoveSegment(next, removed);
  }
  return true;
}

void RingMoves::ProposeMix(const std::vector<Ring>& rings, int first, double place,
                           int most_changes) {
  const int lead = movable_[At(first)];
  const Ring& ring = rings[At(lead)];
  Mixture mix{.lead = first};
  mix.segment = SegmentAt(ring, PositionAt(place, ranks_[At(lead)].positions()));
  mix.left = ring[mix.segment].clock - Step(kMostClockStep);
  mix.right = ring[mix.segment].clock + Step(kMostClockStep);
  if (Below(2) == 0) std::swap(mix.left, mix.right);
  const auto count = static_cast<int>(movable_.size());
  mix.last = count - 1;
  const int range = Below(4);
  if (range < 2) mix.from = mix.last = first;
  if (range == 0) mix.last = std::min(count - 1, first + 1 + Below(count));
  Mix(rings, mix, most_changes);
}

std::vector<std::vector<Ring>> RingMoves::Mixes(const std::vector<Ring>& rings, int most_changes) {
  constexpr int kMostStep = 2;
  std::vector<std::vector<Ring>> mixes;
  const auto last = static_cast<int>(movable_.size()) - 1;
  const auto add = [&](const Mixture& mix) {
    used_ = 0;
    Mix(rings, mix, most_changes);
    if (used_ == 0) return;
    mixes.push_back(rings);
    for (std::size_t i = 0; i < used_; ++i) {
      mixes.back()[At(proposals_[i].pp_rank)] = proposals_[i].ring;
    }
  };
  for (int lead = 0; lead <= last; ++lead) {
    const Ring& ring = rings[At(movable_[At(lead)])];
    const int positions = ranks_[At(movable_[At(lead)])].positions();
    std::size_t longest = 0;
    for (std::size_t j = 1; j < ring.size(); ++j) {
      if (LengthOf(ring, j, positions) > LengthOf(ring, longest, positions)) longest = j;
    }
    for (int slower = 1; slower <= kMostStep; ++slower) {
      for (int faster = 1; faster <= kMostStep; ++faster) {
        const int low = ring[longest].clock - slower;
        const int high = ring[longest].clock + faster;
        add({.lead = lead, .segment = longest, .left = low, .right = high, .last = last});
        add({.lead = lead, .segment = longest, .left = high, .right = low, .last = last});
      }
    }
  }
  return mixes;
}

void RingMoves::Mix(const std::vector<Ring>& rings, const Mixture& mix, int most_changes) {
  const int lead = movable_[At(mix.lead)];
  const RankClocks& rank = ranks_[At(lead)];
  const Ring& ring = rings[At(lead)];
  const int positions = rank.positions();
  const int begin = ring[mix.segment].start;
  const int length = LengthOf(ring, mix.segment, positions);
  if (ring.size() + 1 > MostSegments(most_changes) || length < 4) return;
  if (std::min(mix.left, mix.right) < 0 || std::max(mix.left, mix.right) >= rank.clocks) return;
  // The two clocks share the segment in such a way that its total time stays the same.
  const auto time = [&](int at) {
    return static_cast<double>(SumOf(rank, begin, length, at).time);
  };
  const double old_time = time(ring[mix.segment].clock);
  const double left_ratio = time(mix.left) / old_time;
  const double right_ratio = time(mix.right) / old_time;
  const double left_part = (right_ratio - 1) / (right_ratio - left_ratio);
  if (!(left_part > 0 && left_part < 1)) return;
  const int left_length = std::clamp(static_cast<int>(left_part * length), 1, length - 1);
  const int middle = Wrap(begin + left_length, positions);
  for (int f = mix.from; f <= mix.last; ++f) {
    const int r = movable_[At(f)];
    const RankClocks& its = ranks_[At(r)];
    const Ring& old = rings[At(r)];
    const int split =
        r == lead ? middle
                  : PositionAt((middle + 0.5) / static_cast<double>(positions), its.positions());
    const std::size_t segment = SegmentAt(old, split);
    const auto [its_begin, its_clock] = old[segment];
    const int before = Wrap(split - its_begin, its.positions());
    if (before == 0 || old.size() + 1 > MostSegments(most_changes)) continue;
    const int after = LengthOf(old, segment, its.positions()) - before;
    scratch_ = old;
    scratch_[segment].clock =
        r == lead ? mix.left : ClockFor(its, its_begin, before, its_clock, left_ratio);
    scratch_.push_back(
        {split, r == lead ? mix.right : ClockFor(its, split, after, its_clock, right_ratio)});
    Normalize(scratch_);
    ProposeRing(rings, r, scratch_, most_changes);
  }
}

}  // namespace perseus::few_switches
