// The discrete problem: choose one useful option for every instruction.
//
// Useful options are on the Pareto front of time and effective energy: for every other option, a
// useful option exists that is at least as fast and needs no more effective energy. ChoiceGraph is
// the common data of the rounding and of window_search.h. It has the useful options in order of
// time, and the neighbors of each instruction in both directions of time.
//
// Thread safety: const methods may be called from several threads.
#pragma once

#include <span>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan {

// A search ignores a smaller gain (in joules), because it may come from the rounding of sums.
inline constexpr double kLeastGainJ = 1e-9;

struct Candidate {
  Nanoseconds time = 0;
  double effective_energy_j = 0;
  int option = 0;  // Index in the instruction's option set.
};

// A choice for every instruction: an index into its candidates.
using Choices = std::vector<int>;

class ChoiceGraph {
 public:
  struct Neighbor {
    int instruction = 0;
    Nanoseconds delay = 0;
    int dependency = 0;  // Index in graph.dependencies.
  };

  // Keeps a reference to `graph`.
  ChoiceGraph(const schedule::InstructionGraph& graph, double blocking_power_w);

  int instructions() const { return static_cast<int>(graph_.instructions.size()); }
  const schedule::InstructionGraph& graph() const { return graph_; }
  // Fastest (and most expensive) first.
  std::span<const Candidate> candidates(int instruction) const {
    return candidates_[Set(instruction)];
  }
  std::span<const Neighbor> predecessors(int instruction) const {
    return predecessors_.Of(instruction);
  }
  std::span<const Neighbor> successors(int instruction) const {
    return successors_.Of(instruction);
  }

  // The sum of effective energies, in joules. The energy of the plan is this sum plus the blocking
  // power of all pp_ranks times the length of the plan.
  double EffectiveEnergy(const Choices& choices) const;
  std::vector<int> Options(const Choices& choices) const;

 private:
  struct Neighbors {
    std::vector<int> first;
    std::vector<Neighbor> all;
    std::span<const Neighbor> Of(int instruction) const {
      const auto i = static_cast<std::size_t>(instruction);
      return {all.data() + first[i], all.data() + first[i + 1]};
    }
  };
  enum class Direction { kPredecessors, kSuccessors };
  static Neighbors CollectNeighbors(const schedule::InstructionGraph& graph, Direction direction);

  std::size_t Set(int instruction) const {
    return static_cast<std::size_t>(
        graph_.instructions[static_cast<std::size_t>(instruction)].option_set);
  }

  const schedule::InstructionGraph& graph_;
  std::vector<std::vector<Candidate>> candidates_;  // [option set]
  Neighbors predecessors_;
  Neighbors successors_;
};

// The start of each instruction if all instructions start as early, or as late, as the choices and
// the length allow. A convex combination of the two (with the same weights for all instructions) is
// also a schedule.
std::vector<Nanoseconds> EarliestStarts(const ChoiceGraph& graph, const Choices& choices);
std::vector<Nanoseconds> LatestStarts(const ChoiceGraph& graph, const Choices& choices,
                                      Nanoseconds length);

// Rounds the durations of a relaxed schedule to measured options. The result is never late.
//
// The simple way is to round every instruction down to the next faster option. It wastes 0.1 to 3 %
// of the energy, because each instruction leaves a little slack that nothing uses. Error diffusion
// passes this slack on to later instructions. (The method is known from printing gray with black
// dots.) It visits the instructions in order of time. Each instruction starts when its predecessors
// really end, which is no later than in the relaxed schedule. It gets the slowest option that ends
// no later than in the relaxed schedule. So the next instruction can use the remaining slack.
// Backward in time, the method works in the same way and gives other plans.
//
// All useful options take part, even if they are not on the convex hull: an option above the hull
// often fits better.

// The start and the end of each instruction in a relaxed schedule.
struct Windows {
  Nanoseconds length = 0;  // The length of the whole schedule.
  std::vector<Nanoseconds> starts;
  std::vector<Nanoseconds> ends;
};

// Requires a solution of `network`.
Windows WindowsOf(const frontier::Network& network, const frontier::Solution& solution);

enum class TimeDirection { kForward, kBackward };

// Returns a choice for every instruction. The schedule of the choices is no longer than
// windows.length.
Choices DiffuseRounding(const ChoiceGraph& graph, const Windows& windows, TimeDirection direction);

}  // namespace perseus::plan
