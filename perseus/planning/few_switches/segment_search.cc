#include "perseus/planning/few_switches/segment_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus::few_switches {
namespace {

// The search ignores a gain below this value (in joules), because it may come from the rounding of
// sums.
constexpr double kLeastGain = 1e-9;
// The first and the last price of each second after the deadline, relative to the marginal price of
// time at the relaxed optimum.
constexpr double kFirstLatePrice = 0.5;
constexpr double kLastLatePrice = 100;
// The first reward for each second before the deadline, relative to the same marginal price. It
// falls to 0.
constexpr double kFirstEarlyPrice = 0.5;
// Temperatures, as fractions of the mean energy of an instruction in the baseline.
constexpr double kFirstTemperature = 0.01;
constexpr double kLastTemperature = 0.0005;
// Temperatures and prices change after this many moves.
constexpr std::int64_t kMovesPerStage = 64;
// If a latency is at least as long as the shortest instruction, it changes times and energies very
// much. Then the latest time of a move gets this part of the latency as slack. (With latencies of
// 50 to 400 ms, plans save 0.02 to 0.2 points more than without the slack, and the search takes 1.5
// times as long. For shorter latencies, the slack only makes the search slower.)
constexpr double kLongLatencySlack = 0.3;
// If a move makes a path too long, the search tries to make a segment faster. It tries this many
// segments.
constexpr int kTriesOfRepair = 4;
// Whether the ring has several segments, and one of them begins at the position. `next` is the
// index of the first segment that starts later.
bool BeginsAt(const Ring& ring, std::size_t next, int position) {
  return ring.size() > 1 && next > 0 && ring[next - 1].start == position;
}

// Samples of a distribution that is close to the exponential one with mean 1: the middles of
// equally likely parts. 64 (u^(-1/64) - 1) tends to -log(u). It needs only square roots, which are
// the same on every machine. Logarithms are not.
std::vector<double> SamplesOfExponential() {
  std::vector<double> samples(1024);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    double root = (static_cast<double>(i) + 0.5) / static_cast<double>(samples.size());
    for (int halving = 0; halving < 6; ++halving) root = std::sqrt(root);
    samples[i] = 64 * (1 / root - 1);
  }
  return samples;
}

}  // namespace

SegmentSearch::SegmentSearch(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                             Nanoseconds deadline, double price_w, double waiting_w,
                             Nanoseconds stall)
    : planner_(planner),
      ranks_(ranks),
      switch_cost_{stall, planner.model().switch_cost.energy_j},
      deadline_(deadline),
      waiting_j_per_ns_(waiting_w / kNanosecondsPerSecond),
      price_j_per_ns_(std::max(price_w, planner.model().blocking_power_w) / kNanosecondsPerSecond),
      moves_(ranks),
      timeline_(planner.graph(), ranks, planner.model()),
      late_paths_(ranks, stall) {
  const Nanoseconds latency = planner.model().switch_latency;
  const auto is_short = [&](const RankClocks& rank) {
    return std::ranges::any_of(rank.times, [&](Nanoseconds time) { return time <= latency; });
  };
  if (std::ranges::any_of(ranks, is_short)) {
    latency_slack_ = static_cast<Nanoseconds>(kLongLatencySlack * static_cast<double>(latency));
  }
  const schedule::InstructionGraph& graph = planner.graph();
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    const schedule::OptionSet& set = graph.options_of(static_cast<int>(i));
    if (set.HasClock()) continue;
    fixed_energy_j_ +=
        profile::EffectiveEnergy(set.options.front(), planner.model().blocking_power_w);
  }
}

std::vector<int> SegmentSearch::OptionsOf(const std::vector<Ring>& rings) const {
  std::vector<int> options(planner_.graph().instructions.size(), 0);
  for (const int r : moves_.movable()) {
    const RankClocks& rank = ranks_[At(r)];
    const std::vector<int> clocks = ClocksOf(rings[At(r)], rank.positions());
    for (int p = 0; p < rank.positions(); ++p) {
      options[At(rank.instructions[At(p)])] = rank.options[rank.Cell(p, clocks[At(p)])];
    }
  }
  return options;
}

bool SegmentSearch::IsMeasured(const std::vector<Ring>& rings) const {
  for (const int r : moves_.movable()) {
    const RankClocks& rank = ranks_[At(r)];
    const std::vector<int> clocks = ClocksOf(rings[At(r)], rank.positions());
    for (int p = 0; p < rank.positions(); ++p) {
      if (rank.options[rank.Cell(p, clocks[At(p)])] == RankClocks::kUnmeasured) return false;
    }
  }
  return true;
}

double SegmentSearch::Cost(double instruction_energy_j, Nanoseconds time) const {
  const Nanoseconds late = std::max<Nanoseconds>(0, time - deadline_);
  const Nanoseconds early = std::max<Nanoseconds>(0, deadline_ - time);
  return instruction_energy_j + waiting_j_per_ns_ * static_cast<double>(time) +
         late_j_per_ns_ * static_cast<double>(late) - early_j_per_ns_ * static_cast<double>(early);
}

std::optional<std::vector<Ring>> SegmentSearch::BestMix(const std::vector<Ring>& rings,
                                                        int most_changes) {
  std::optional<std::vector<Ring>> best;
  double least = 0;
  late_j_per_ns_ = early_j_per_ns_ = price_j_per_ns_;
  for (std::vector<Ring>& mix : moves_.Mixes(rings, most_changes)) {
    if (!IsMeasured(mix)) continue;
    Start(mix);
    const double cost = CurrentCost();
    if (best && cost >= least) continue;
    best = std::move(mix);
    least = cost;
  }
  return best;
}

double SegmentSearch::CurrentCost() const {
  return Cost(energy_j_ + timeline_.late_energy_j(), timeline_.time());
}

void SegmentSearch::Remember() {
  if (timeline_.time() > deadline_) return;
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
  for (const int r : moves_.movable()) {
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
  late_paths_.Clear();
  proposals_ = {};
  Remember();
}

double SegmentSearch::Exponential() {
  static const std::vector<double> samples = SamplesOfExponential();
  return samples[At(Below(moves_.random(), static_cast<int>(samples.size())))];
}

bool SegmentSearch::SumChanges() {
  stretches_.clear();
  energy_change_j_ = 0;
  gain_ = 0;
  for (const RingMoves::Proposal& proposal : proposals_) {
    const RankClocks& rank = ranks_[At(proposal.pp_rank)];
    const Ring& ring = proposal.ring;
    const Ring& old_ring = rings_[At(proposal.pp_rank)];
    // Stretches between neighboring boundaries of both rings. `next` and `old_next` are the indices
    // of the next boundaries.
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
      // Whether the first instruction of the stretch begins with a clock change. The others do not.
      const bool pays = BeginsAt(ring, next, begin);
      const bool paid = BeginsAt(old_ring, old_next, begin);
      if (clock != old_clock) {
        stretches_.push_back({proposal.pp_rank, begin, end, clock, old_clock, pays, paid});
        if (!SumStretch(stretches_.back())) return false;
      } else if (pays != paid && !switch_cost_.IsNone()) {
        stretches_.push_back({proposal.pp_rank, begin, begin + 1, clock, clock, pays, paid});
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

bool SegmentSearch::SumStretch(const Stretch& stretch) {
  const RankClocks& rank = ranks_[At(stretch.pp_rank)];
  const int* before = rank.rows_before.data() + At(stretch.begin) * At(rank.row_count);
  const int* until = rank.rows_before.data() + At(stretch.end) * At(rank.row_count);
  for (int row = 0; row < rank.row_count; ++row) {
    const int count = until[row] - before[row];
    if (count == 0) continue;
    const std::size_t cell = At(row) * At(rank.clocks) + At(stretch.clock);
    const std::size_t old_cell = At(row) * At(rank.clocks) + At(stretch.old_clock);
    if (rank.options[cell] == RankClocks::kUnmeasured) return false;
    energy_change_j_ += count * (rank.energies_j[cell] - rank.energies_j[old_cell]);
    gain_ += count * std::max<Nanoseconds>(0, rank.times[old_cell] - rank.times[cell]);
  }
  return true;
}

bool SegmentSearch::CollectChanges(Nanoseconds latest) {
  changes_.clear();
  timeline_.PreparePaths();
  // The changes shorten each path by at most gain_.
  const Nanoseconds most = latest < Timeline::kNoLimit - gain_ ? latest + gain_ : latest;
  for (const Stretch& stretch : stretches_) {
    const RankClocks& rank = ranks_[At(stretch.pp_rank)];
    Nanoseconds stall = stretch.pays ? switch_cost_.stall : 0;
    Nanoseconds end = 0;  // A lower bound of the end of the previous instruction.
    for (int p = stretch.begin; p < stretch.end; ++p) {
      const int instruction = rank.instructions[At(p)];
      const Nanoseconds time = rank.times[rank.Cell(p, stretch.clock)] + stall;
      changes_.push_back({instruction, time, stretch.clock});
      stall = 0;
      end = std::max(end, timeline_.path_before(instruction)) + time;
      if (end + timeline_.path_after(instruction) > most) return false;
    }
  }
  return true;
}

// The longest time at which the changes cost about `threshold` or less. Assumes that a latency adds
// as much energy as before the move.
Nanoseconds SegmentSearch::LatestTime(double threshold) const {
  const double left_j = threshold - Cost(EnergyAfter() + timeline_.late_energy_j(), deadline_);
  const double price = waiting_j_per_ns_ + (left_j > 0 ? late_j_per_ns_ : early_j_per_ns_);
  constexpr double kFar = 1e15;
  if (price <= 0) return Timeline::kNoLimit;
  const double left = std::ceil(std::clamp(left_j / price, -kFar, kFar));
  return deadline_ + static_cast<Nanoseconds>(left) + latency_slack_;
}

bool SegmentSearch::Decide(double threshold) {
  excess_.reset();
  const Nanoseconds latest = LatestTime(threshold);
  // The iteration cannot take less than the two times in max().
  if (latest < std::max(timeline_.time() - gain_, planner_.least_time())) return false;
  excess_ = late_paths_.FindLate(stretches_, latest);
  if (excess_ || !CollectChanges(latest)) return false;
  const bool is_late = timeline_.Try(changes_, latest) > latest;
  if (is_late && late_paths_.are_worthwhile() && !timeline_.has_latency()) {
    const std::vector<int> path = timeline_.TraceLatePath();
    timeline_.Undo();
    late_paths_.Add(path, timeline_.LengthOf(path));
    return false;
  }
  const auto is_cheap = [&] {
    return Cost(EnergyAfter() + timeline_.late_energy_j(), timeline_.time()) <= threshold;
  };
  bool is_accepted = is_cheap();
  if (is_accepted && timeline_.has_latency()) {
    timeline_.Complete();
    is_accepted = is_cheap();
  }
  if (!is_accepted) {
    timeline_.Undo();
    return false;
  }
  return true;
}

bool SegmentSearch::Repair(double threshold) {
  if (!excess_) return false;
  // The maximum cost of the speedup, if the iteration then ends at the deadline.
  double least_j = threshold - Cost(EnergyAfter(), deadline_);
  struct Choice {
    int pp_rank = 0;
    std::size_t segment = 0;
    int clock = 0;
  };
  std::optional<Choice> best;
  for (int tries = 0; tries < kTriesOfRepair && least_j > 0; ++tries) {
    const std::vector<int>& movable = moves_.movable();
    const int r = movable[At(Below(moves_.random(), static_cast<int>(movable.size())))];
    const Ring& ring = moves_.RingOf(rings_, r);
    const auto segment = At(Below(moves_.random(), static_cast<int>(ring.size())));
    const auto speedup = late_paths_.FindSpeedup(*excess_, least_j, r, ring, segment);
    if (!speedup) continue;
    least_j = speedup->energy_j;
    best = {r, segment, speedup->clock};
  }
  if (!best) return false;
  proposals_ = moves_.AddClock(rings_, best->pp_rank, best->segment, best->clock);
  return SumChanges() && Decide(threshold);
}

void SegmentSearch::Accept() {
  timeline_.Keep();
  late_paths_.Apply(stretches_);
  energy_j_ += energy_change_j_;
  for (RingMoves::Proposal& proposal : proposals_) {
    std::swap(rings_[At(proposal.pp_rank)], proposal.ring);
  }
  Remember();
}

void SegmentSearch::Anneal(std::vector<Ring> start, int most_changes, const Effort& effort,
                           std::initializer_list<std::stop_token> ends) {
  Start(std::move(start));
  if (moves_.movable().empty()) return;
  moves_.random().state = effort.seed;
  const double instruction_j =
      planner_.baseline().energy_j / static_cast<double>(planner_.graph().instructions.size());
  const std::int64_t stages = std::max<std::int64_t>(1, effort.moves / kMovesPerStage);
  // A value that falls from `first` to `last`, fast at the beginning. In a geometric sequence, the
  // last bits would differ between machines. This inverse of a square uses only square roots and
  // divisions, so it is the same everywhere.
  const auto interpolate = [&](double first, double last, std::int64_t stage) {
    const double a = std::sqrt(first / last) - 1;
    const double part = static_cast<double>(stage) / static_cast<double>(stages);
    return first / ((1 + a * part) * (1 + a * part));
  };
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    if (std::ranges::any_of(ends, &std::stop_token::stop_requested)) return;
    const double temperature_j =
        instruction_j * interpolate(kFirstTemperature, kLastTemperature, stage);
    late_j_per_ns_ = price_j_per_ns_ * kLastLatePrice /
                     (interpolate(kLastLatePrice / kFirstLatePrice, 1, stage));
    early_j_per_ns_ = price_j_per_ns_ * kFirstEarlyPrice *
                      (1 - static_cast<double>(stage) / static_cast<double>(stages));
    cost_ = CurrentCost();
    for (std::int64_t move = 0; move < kMovesPerStage; ++move) {
      proposals_ = moves_.Propose(rings_, most_changes);
      if (!SumChanges()) continue;
      const double threshold = cost_ + temperature_j * Exponential();
      if (!Decide(threshold) && !Repair(threshold)) continue;
      Accept();
      cost_ = CurrentCost();
    }
  }
}

std::vector<SegmentSearch::Step> SegmentSearch::Steps() const {
  std::vector<Step> steps;
  for (const int r : moves_.movable()) {
    const Ring& ring = rings_[At(r)];
    for (std::size_t j = 0; j < ring.size(); ++j) {
      for (const int amount : {1, -1}) {
        const int clock = ring[j].clock + amount;
        if (clock >= 0 && clock < ranks_[At(r)].clocks) {
          steps.push_back({r, j, Step::Kind::kClock, amount});
        }
        if (ring.size() > 1) steps.push_back({r, j, Step::Kind::kBoundary, amount});
      }
    }
  }
  return steps;
}

bool SegmentSearch::Improve(std::span<const Step> steps) {
  std::size_t used = 0;
  for (const Step& step : steps) {
    std::size_t index = 0;
    while (index < used && stepped_[index].pp_rank != step.pp_rank) ++index;
    if (index == stepped_.size()) stepped_.emplace_back();
    RingMoves::Proposal& proposal = stepped_[index];
    if (index == used) {
      proposal.pp_rank = step.pp_rank;
      proposal.ring = rings_[At(step.pp_rank)];
      ++used;
    }
    Ring& ring = proposal.ring;
    Segment& segment = ring[step.segment];
    if (step.kind == Step::Kind::kClock) {
      segment.clock += step.amount;
      continue;
    }
    segment.start = Wrap(segment.start + step.amount, ranks_[At(step.pp_rank)].positions());
    const std::size_t next = (step.segment + 1) % ring.size();
    const std::size_t before = (step.segment + ring.size() - 1) % ring.size();
    if (segment.start == ring[next].start || segment.start == ring[before].start) return false;
  }
  proposals_ = {stepped_.data(), used};
  for (RingMoves::Proposal& proposal : proposals_) Normalize(proposal.ring);
  if (!SumChanges() || !Decide(cost_ - kLeastGain)) return false;
  Accept();
  cost_ = CurrentCost();
  return true;
}

bool SegmentSearch::ImproveByOneStep(std::int64_t& tries_left) {
  const std::vector<Step> steps = Steps();
  for (std::size_t i = 0; i < steps.size() && tries_left > 0; ++i, --tries_left) {
    if (Improve({&steps[i], 1})) return true;
  }
  return false;
}

bool SegmentSearch::ImproveByTwoClocks(std::int64_t& tries_left) {
  const std::vector<Step> steps = Steps();
  for (const Step& slower : steps) {
    if (slower.kind != Step::Kind::kClock || slower.amount < 0) continue;
    for (const Step& faster : steps) {
      if (faster.kind != Step::Kind::kClock || faster.amount > 0) continue;
      if (tries_left-- <= 0) return false;
      const Step both[] = {slower, faster};
      if (Improve(both)) return true;
    }
  }
  return false;
}

void SegmentSearch::Polish(std::int64_t most_tries) {
  if (!best_) return;
  Start(best_->rings);
  // Each nanosecond after the deadline costs more than any saving. Otherwise, the descent could
  // leave the deadline and would not return to it.
  late_j_per_ns_ = planner_.baseline().energy_j;
  early_j_per_ns_ = 0;
  cost_ = CurrentCost();
  std::int64_t tries_left = most_tries;
  while (ImproveByOneStep(tries_left) || ImproveByTwoClocks(tries_left)) {
  }
}

}  // namespace perseus::few_switches
