#include "perseus/planning/plan/window_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::plan {
namespace {

constexpr double kJoulesPerFemtojoule = 1e-15;
// An instruction with more neighbors than this is only in its own window, because every window
// examines all neighbors of its members. Pipelines have no such instruction. A barrier in a general
// graph is one.
constexpr std::size_t kMostNeighbors = 64;
constexpr int kOutside = -1;
constexpr int kOnFringe = -2;

}  // namespace

WindowSearch::WindowSearch(const ChoiceGraph& graph, const frontier::Network& network,
                           const frontier::Solution& solution, std::stop_token stop)
    : graph_(graph), stop_(std::move(stop)), length_(solution.time(network)), random_(1) {
  const int instructions = graph.instructions();
  const auto price = [&](std::int32_t arc) {
    return static_cast<double>(solution.flow[At(arc)]) * kJoulesPerFemtojoule;
  };
  for (int i = 0; i < instructions; ++i) instruction_prices_.push_back(price(i));

  // If the two events of a dependency coincide in the network, the dependency has no arc. Then it
  // is the only dependency of one of its instructions on that side, so it has the flow of that
  // instruction.
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
      reduced_.push_back({energy, static_cast<int>(c)});
    }
    const auto first = reduced_.begin() + static_cast<std::ptrdiff_t>(first_reduced_.back());
    for (auto it = first; it != reduced_.end(); ++it) it->energy_j -= least;
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
  // This is slack * part / kWhole, rounded down once, without overflow. A single rounding keeps
  // every dependency satisfied.
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    const Nanoseconds slack = latest[i] - starts_[i];
    starts_[i] += slack / kWhole * part + slack % kWhole * part / kWhole;
  }
}

// Grows the window from `center` along dependencies: breadth first, at random, or in between.
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
  std::sort(window_.begin(), window_.end());  // Instructions are in topological order.
  for (std::size_t m = 0; m < window_.size(); ++m) {
    member_of_[At(window_[m])] = static_cast<int>(m);
  }
}

// Fixes the ends and starts of the instructions around the window.
void WindowSearch::Surround(const Choices& choices) {
  origin_ = starts_[At(window_.front())];
  members_.clear();
  links_.clear();
  for (const int instruction : window_) {
    Member member;
    member.instruction = instruction;
    member.release = -origin_;
    member.due = length_ - origin_;
    member.first_link = static_cast<int>(links_.size());
    const auto await = [&](Nanoseconds time, double price) {
      member.release = std::max(member.release, time);
      member.in_price += price;
      member.in_paid += price * static_cast<double>(time);
    };
    const auto promise = [&](Nanoseconds time, double price) {
      member.due = std::min(member.due, time);
      member.out_price += price;
      member.out_paid += price * static_cast<double>(time);
    };
    const auto before = graph_.predecessors(instruction);
    const auto after = graph_.successors(instruction);
    if (before.empty()) await(-origin_, instruction_prices_[At(instruction)]);
    if (after.empty()) promise(length_ - origin_, instruction_prices_[At(instruction)]);
    for (const auto& neighbor : before) {
      const double price = dependency_prices_[At(neighbor.dependency)];
      const int inside = member_of_[At(neighbor.instruction)];
      if (inside >= 0) {
        links_.push_back({inside, neighbor.delay, price});
      } else {
        await(EndOf(neighbor.instruction, choices) + neighbor.delay - origin_, price);
      }
    }
    for (const auto& neighbor : after) {
      if (member_of_[At(neighbor.instruction)] >= 0) continue;
      promise(starts_[At(neighbor.instruction)] - neighbor.delay - origin_,
              dependency_prices_[At(neighbor.dependency)]);
    }
    members_.push_back(member);
  }
}

// Starts the member as early as its predecessors allow. Returns the cost of waiting (2), or kLate.
double WindowSearch::Place(int index, const Candidate& candidate) {
  Member& member = members_[At(index)];
  const int last_link = At(index) + 1 < members_.size() ? members_[At(index) + 1].first_link
                                                        : static_cast<int>(links_.size());
  Nanoseconds start = member.release;
  for (int i = member.first_link; i < last_link; ++i) {
    const Link& link = links_[At(i)];
    start = std::max(start, members_[At(link.member)].end + link.delay);
  }
  member.end = start + candidate.time;
  if (member.end > member.due) return kLate;
  double loss = member.in_price * static_cast<double>(start) - member.in_paid + member.out_paid -
                member.out_price * static_cast<double>(member.end);
  for (int i = member.first_link; i < last_link; ++i) {
    const Link& link = links_[At(i)];
    loss += link.price * static_cast<double>(start - members_[At(link.member)].end - link.delay);
  }
  return std::max(loss, 0.0);
}

double WindowSearch::PresentLoss(const Choices& choices) {
  double loss = 0;
  for (std::size_t m = 0; m < window_.size(); ++m) {
    const int instruction = window_[m];
    const int choice = choices[At(instruction)];
    loss += Place(static_cast<int>(m), graph_.candidates(instruction)[At(choice)]);
    const auto reduced = ReducedOf(instruction);
    loss += std::find_if(reduced.begin(), reduced.end(), [choice](const Reduced& r) {
              return r.candidate == choice;
            })->energy_j;
  }
  return loss;
}

void WindowSearch::Search(int member, double loss) {
  if (At(member) == members_.size()) {
    best_loss_ = loss;
    best_ = trial_;
    return;
  }
  const int instruction = members_[At(member)].instruction;
  const auto candidates = graph_.candidates(instruction);
  for (const Reduced& reduced : ReducedOf(instruction)) {
    const double so_far = loss + reduced.energy_j;
    if (so_far >= best_loss_ - kLeastGainJ || --tries_left_ < 0) return;
    const double waiting = Place(member, candidates[At(reduced.candidate)]);
    if (waiting == kLate || so_far + waiting >= best_loss_ - kLeastGainJ) continue;
    trial_[At(member)] = reduced.candidate;
    Search(member + 1, so_far + waiting);
  }
}

double WindowSearch::ImproveWindow(int center, const Effort& effort, Choices& choices) {
  // With varying sizes, rounds do not examine the same windows again.
  const int size = effort.window - static_cast<int>(random_() % 3);
  CollectWindow(center, size);
  Surround(choices);
  const double present = PresentLoss(choices);
  double saved = 0;
  if (present > kLeastGainJ) {
    trial_.assign(window_.size(), 0);
    best_loss_ = present;
    best_.clear();
    tries_left_ = effort.tries;
    Search(0, 0);
    tries_ += effort.tries - std::max<std::int64_t>(tries_left_, 0);
    if (!best_.empty()) {
      saved = present - best_loss_;
      for (std::size_t m = 0; m < window_.size(); ++m) choices[At(window_[m])] = best_[m];
    }
    PresentLoss(choices);  // Places the members with the final choices.
    for (const Member& member : members_) {
      const int choice = choices[At(member.instruction)];
      starts_[At(member.instruction)] =
          origin_ + member.end - graph_.candidates(member.instruction)[At(choice)].time;
    }
  }
  for (const int instruction : window_) member_of_[At(instruction)] = kOutside;
  return saved;
}

double WindowSearch::Improve(Choices& choices, const Effort& effort) {
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
