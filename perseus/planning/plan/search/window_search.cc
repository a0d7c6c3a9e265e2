#include "perseus/planning/plan/search/window_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::plan {
namespace {

constexpr double kJoulesPerFemtojoule = 1e-15;
// If an instruction has more neighbors than this, it is a member only of its own window. The
// reason: every window examines all neighbors of its members. Pipelines have no such instruction. A
// barrier in a general graph is one.
constexpr std::size_t kMostNeighbors = 64;
constexpr double kLate = std::numeric_limits<double>::infinity();
// Doubles hold whole nanoseconds exactly up to 2^53. A longer iteration (104 days) is not searched.
constexpr Nanoseconds kLongest = Nanoseconds{1} << 53;
constexpr int kOutside = -1;
constexpr int kOnFringe = -2;

}  // namespace

WindowSearch::WindowSearch(const ChoiceGraph& graph, const frontier::Network& network,
                           const frontier::Solution& solution, std::stop_token stop)
    : graph_(graph), stop_(std::move(stop)), length_(solution.time(network)), random_(1) {
  const int instructions = graph.instructions();
  const auto price = [&](std::int32_t arc) {
    return static_cast<double>(solution.flow[At(arc)].count()) * kJoulesPerFemtojoule;
  };
  for (int i = 0; i < instructions; ++i) instruction_prices_.push_back(price(i));

  // If the two events of a dependency are one node in the network, the dependency has no arc. Then
  // one of its two instructions has no other dependency on that side. So the dependency has the
  // flow of this instruction.
  dependency_prices_.resize(graph.graph().dependencies.size());
  for (std::size_t d = 0; d < dependency_prices_.size(); ++d) {
    const schedule::Dependency& dependency = graph.graph().dependencies[d];
    const std::int32_t arc = network.arc_of_dependency[d];
    const bool only_one_awaited = graph.predecessors(dependency.to).size() == 1;
    dependency_prices_[d] = arc >= 0           ? price(arc)
                            : only_one_awaited ? instruction_prices_[At(dependency.to)]
                                               : instruction_prices_[At(dependency.from)];
  }

  first_reduced_.push_back(0);
  for (int i = 0; i < instructions; ++i) {
    double least = std::numeric_limits<double>::infinity();
    const auto candidates = graph.candidates(i);
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      const double energy = candidates[c].effective_energy_j +
                            instruction_prices_[At(i)] * static_cast<double>(candidates[c].time);
      least = std::min(least, energy);
      reduced_.push_back({energy, static_cast<double>(candidates[c].time), static_cast<int>(c)});
    }
    const auto first = reduced_.begin() + static_cast<std::ptrdiff_t>(first_reduced_.back());
    for (auto it = first; it != reduced_.end(); ++it) it->energy_j -= least;
    by_time_.insert(by_time_.end(), first, reduced_.end());
    std::sort(first, reduced_.end(), [](const Reduced& a, const Reduced& b) {
      return a.energy_j != b.energy_j ? a.energy_j < b.energy_j : a.candidate < b.candidate;
    });
    first_reduced_.push_back(reduced_.size());
  }
  member_of_.assign(At(instructions), kOutside);
}

std::span<const WindowSearch::Reduced> WindowSearch::ReducedOf(int instruction) const {
  return {reduced_.data() + first_reduced_[At(instruction)],
          reduced_.data() + first_reduced_[At(instruction) + 1]};
}

std::span<const WindowSearch::Reduced> WindowSearch::ByTime(int instruction) const {
  return {by_time_.data() + first_reduced_[At(instruction)],
          by_time_.data() + first_reduced_[At(instruction) + 1]};
}

Nanoseconds WindowSearch::EndOf(int instruction, const Choices& choices) const {
  return starts_[At(instruction)] +
         graph_.candidates(instruction)[At(choices[At(instruction)])].time;
}

// Makes a schedule between the earliest and the latest one.
void WindowSearch::Reschedule(const Choices& choices) {
  starts_ = EarliestStarts(graph_, choices);
  const std::vector<Nanoseconds> latest = LatestStarts(graph_, choices, length_);
  constexpr std::int64_t kWhole = 1024;
  std::int64_t part = static_cast<std::int64_t>(random_() % kWhole);
  if (round_ % 3 == 0) part = 0;
  if (round_ % 3 == 1) part = kWhole;
  // This is slack * part / kWhole, without overflow, and rounded down only once. A single rounding
  // keeps every dependency satisfied.
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    const Nanoseconds slack = latest[i] - starts_[i];
    starts_[i] += slack / kWhole * part + slack % kWhole * part / kWhole;
  }
}

// Grows the window from `center` along dependencies: breadth first, at random, or a mix of both.
void WindowSearch::CollectWindow(int center, int size) {
  window_.assign(1, center);
  fringe_.clear();
  member_of_[At(center)] = 0;
  const auto is_hub = [&](int instruction) {
    return graph_.predecessors(instruction).size() + graph_.successors(instruction).size() >
           kMostNeighbors;
  };
  const auto reach = [&](std::span<const ChoiceGraph::Neighbor> neighbors) {
    for (const auto& neighbor : neighbors) {
      const int instruction = neighbor.instruction;
      if (member_of_[At(instruction)] != kOutside) continue;
      if (graph_.candidates(instruction).size() == 1 || is_hub(instruction)) continue;
      member_of_[At(instruction)] = kOnFringe;
      fringe_.push_back(instruction);
    }
  };
  const std::size_t shapes[] = {1, 3, std::numeric_limits<std::size_t>::max()};
  const std::size_t choose_from = shapes[random_() % 3];
  if (!is_hub(center)) {
    reach(graph_.predecessors(center));
    reach(graph_.successors(center));
  }
  while (window_.size() < At(size) && !fringe_.empty()) {
    const std::size_t pick = random_() % std::min(choose_from, fringe_.size());
    const int instruction = fringe_[pick];
    fringe_.erase(fringe_.begin() + static_cast<std::ptrdiff_t>(pick));
    member_of_[At(instruction)] = 0;
    window_.push_back(instruction);
    reach(graph_.predecessors(instruction));
    reach(graph_.successors(instruction));
  }
  for (const int instruction : fringe_) member_of_[At(instruction)] = kOutside;
}

// Sorts the members into the order of the search: first the members that the search decides, in
// order of time, and then the leaves, in the order of the members that complete them.
void WindowSearch::OrderWindow() {
  std::sort(window_.begin(), window_.end());  // Instructions are in topological order.
  const auto is_decided = [&](int instruction) {
    return window_.size() == 1 ||
           std::ranges::any_of(graph_.successors(instruction), [&](const auto& neighbor) {
             return member_of_[At(neighbor.instruction)] >= 0;
           });
  };
  const auto leaves = std::stable_partition(window_.begin(), window_.end(), is_decided);
  decided_ = static_cast<int>(leaves - window_.begin());
  for (std::size_t m = 0; m < window_.size(); ++m) {
    member_of_[At(window_[m])] = static_cast<int>(m);
  }
  const auto completed_by = [&](int leaf) {
    int last = 0;
    for (const auto& neighbor : graph_.predecessors(leaf)) {
      last = std::max(last, member_of_[At(neighbor.instruction)]);
    }
    return last;
  };
  std::stable_sort(leaves, window_.end(),
                   [&](int a, int b) { return completed_by(a) < completed_by(b); });
  members_.assign(window_.size(), {});
  int leaf = decided_;
  for (int m = 0; m < decided_; ++m) {
    members_[At(m)].first_leaf = leaf;
    while (At(leaf) < window_.size() && completed_by(window_[At(leaf)]) == m) ++leaf;
    members_[At(m)].end_leaf = leaf;
  }
  for (std::size_t m = At(decided_); m < window_.size(); ++m) {
    member_of_[At(window_[m])] = static_cast<int>(m);
  }
}

// Fixes the ends and starts of the instructions outside the window.
void WindowSearch::Surround(const Choices& choices) {
  origin_ = starts_[At(window_.front())];
  links_.clear();
  for (std::size_t m = 0; m < window_.size(); ++m) {
    const int instruction = window_[m];
    Member& member = members_[m];
    member.instruction = instruction;
    member.release = static_cast<double>(-origin_);
    member.due = static_cast<double>(length_ - origin_);
    member.first_link = static_cast<int>(links_.size());
    const auto await = [&](Nanoseconds time, double price) {
      member.release = std::max(member.release, static_cast<double>(time));
      member.in_price += price;
      member.paid -= price * static_cast<double>(time);
    };
    const auto promise = [&](Nanoseconds time, double price) {
      member.due = std::min(member.due, static_cast<double>(time));
      member.out_price += price;
      member.paid += price * static_cast<double>(time);
    };
    const auto before = graph_.predecessors(instruction);
    const auto after = graph_.successors(instruction);
    if (before.empty()) await(-origin_, instruction_prices_[At(instruction)]);
    if (after.empty()) promise(length_ - origin_, instruction_prices_[At(instruction)]);
    for (const auto& neighbor : before) {
      const double price = dependency_prices_[At(neighbor.dependency)];
      const int inside = member_of_[At(neighbor.instruction)];
      if (inside >= 0) {
        links_.push_back({inside, static_cast<double>(neighbor.delay), price});
        member.in_price += price;
      } else {
        await(EndOf(neighbor.instruction, choices) + neighbor.delay - origin_, price);
      }
    }
    for (const auto& neighbor : after) {
      if (member_of_[At(neighbor.instruction)] >= 0) continue;
      promise(starts_[At(neighbor.instruction)] - neighbor.delay - origin_,
              dependency_prices_[At(neighbor.dependency)]);
    }
    member.end_link = static_cast<int>(links_.size());
  }
}

// Starts the member as early as its predecessors allow.
WindowSearch::Place WindowSearch::PlaceOf(const Member& member) const {
  double start = member.release;
  double base = member.paid;
  for (int i = member.first_link; i < member.end_link; ++i) {
    const Link& link = links_[At(i)];
    const double ready = members_[At(link.member)].end + link.delay;
    start = std::max(start, ready);
    base -= link.price * ready;
  }
  return {start, base + (member.in_price - member.out_price) * start};
}

// Chooses the option of a leaf. No instruction after a leaf is in the window. So a second of the
// duration of the leaf has the same price as a second by which it ends earlier. So the slowest
// candidate that ends in time is the best. Returns the cost of the leaf, or kLate.
double WindowSearch::CloseLeaf(Member& leaf) {
  const Place place = PlaceOf(leaf);
  const double room = leaf.due - place.start;
  const std::span<const Reduced> candidates = ByTime(leaf.instruction);
  const auto beyond =
      std::upper_bound(candidates.begin(), candidates.end(), room,
                       [](double limit, const Reduced& reduced) { return limit < reduced.time; });
  if (beyond == candidates.begin()) return kLate;
  const Reduced& slowest = *(beyond - 1);
  leaf.choice = slowest.candidate;
  leaf.end = place.start + slowest.time;
  return place.base + slowest.energy_j - leaf.out_price * slowest.time;
}

// Places the members with these choices, and returns their cost.
double WindowSearch::PlaceAll(const Choices& choices) {
  double loss = 0;
  for (std::size_t m = 0; m < window_.size(); ++m) {
    Member& member = members_[m];
    const Reduced& chosen = ByTime(member.instruction)[At(choices[At(member.instruction)])];
    const Place place = PlaceOf(member);
    member.end = place.start + chosen.time;
    loss += place.base + chosen.energy_j - member.out_price * chosen.time;
  }
  return loss;
}

void WindowSearch::Search(int index, double loss) {
  if (index == decided_) {
    best_loss_ = loss;
    best_.clear();
    for (const Member& member : members_) best_.push_back(member.choice);
    return;
  }
  Member& member = members_[At(index)];
  const Place place = PlaceOf(member);
  const double room = member.due - place.start;
  for (const Reduced& reduced : ReducedOf(member.instruction)) {
    const double enough = best_loss_ - kLeastGainJ;
    if (loss + reduced.energy_j >= enough || --tries_left_ < 0) return;
    if (reduced.time > room) continue;
    double so_far = loss + place.base + reduced.energy_j - member.out_price * reduced.time;
    if (so_far >= enough) continue;
    member.end = place.start + reduced.time;
    member.choice = reduced.candidate;
    for (int leaf = member.first_leaf; leaf < member.end_leaf && so_far < enough; ++leaf) {
      --tries_left_;
      so_far += CloseLeaf(members_[At(leaf)]);
    }
    if (so_far < enough) Search(index + 1, so_far);
  }
}

double WindowSearch::ImproveWindow(int center, const Effort& effort, Choices& choices) {
  // The window sizes vary, so that rounds do not examine the same windows again.
  const int size = effort.window - static_cast<int>(random_() % 3);
  CollectWindow(center, size);
  OrderWindow();
  Surround(choices);
  const double present = PlaceAll(choices);
  double saved = 0;
  if (present > kLeastGainJ) {
    best_loss_ = present;
    best_.clear();
    tries_left_ = effort.tries;
    Search(0, 0);
    tries_ += effort.tries - std::max<std::int64_t>(tries_left_, 0);
    if (!best_.empty()) {
      saved = present - best_loss_;
      for (std::size_t m = 0; m < window_.size(); ++m) choices[At(window_[m])] = best_[m];
    }
    PlaceAll(choices);
    for (const Member& member : members_) {
      const int choice = choices[At(member.instruction)];
      starts_[At(member.instruction)] = origin_ + static_cast<Nanoseconds>(member.end) -
                                        graph_.candidates(member.instruction)[At(choice)].time;
    }
  }
  for (const int instruction : window_) member_of_[At(instruction)] = kOutside;
  return saved;
}

double WindowSearch::Improve(Choices& choices, const Effort& effort) {
  if (length_ > kLongest) return 0;
  Reschedule(choices);
  double saved = 0;
  const int instructions = graph_.instructions();
  for (int i = 0; i < instructions && !stop_.stop_requested(); ++i) {
    const int center = round_ % 2 == 0 ? i : instructions - 1 - i;
    if (graph_.candidates(center).size() > 1) saved += ImproveWindow(center, effort, choices);
  }
  ++round_;
  return saved;
}

}  // namespace perseus::plan
