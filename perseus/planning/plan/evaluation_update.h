// The time and energy of a plan, updated after a few options change.
//
//   EvaluationUpdate update(evaluator, options, deadline);
//   if (auto totals = update.Try(changes)) update.Keep();   // Or Undo().
//
// A search that evaluates every candidate from scratch (evaluation.h) visits all instructions each
// time. But a change of one option usually affects few of them: its effect ends where an
// instruction waits for something else. So an update visits only instructions with a changed start
// or a changed previous clock, in topological order. It stops as soon as the plan cannot meet the
// deadline: when an instruction ends later than the deadline minus the least possible time of the
// rest.
//
// The rules are the same as in evaluation.h, including switch latency and switch cost. Times and
// switches are equal to those of evaluation.h. Energies are sums of integers, so they do not depend
// on the order of changes. They differ from evaluation.h only by rounding.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "perseus/planning/plan/evaluation.h"

namespace perseus::plan {

class EvaluationUpdate {
 public:
  struct Totals {
    Nanoseconds time = 0;
    double energy_j = 0;
    int switches = 0;
  };
  using Change = std::pair<int, int>;  // An instruction and its new option.

  // Keeps a reference to the evaluator. The initial plan of `options` may miss the deadline.
  EvaluationUpdate(const Evaluator& evaluator, std::vector<int> options, Nanoseconds deadline);

  const std::vector<int>& options() const { return options_; }
  const Totals& totals() const { return totals_; }

  // Returns the totals after the changes, which must be of different instructions. Then call Keep
  // or Undo. If the plan misses the deadline, returns nullopt and changes nothing.
  std::optional<Totals> Try(std::span<const Change> changes);
  void Keep();
  void Undo();

 private:
  static constexpr int kNone = -1;
  using Clock = Evaluator::Clock;  // The clock of a pp_rank after an instruction.
  struct Node {
    Nanoseconds end = 0;
    Nanoseconds duration = 0;
    std::int64_t energy = 0;
    Clock clock;
  };
  struct Run {
    Nanoseconds duration = 0;
    std::int64_t energy = 0;
  };

  void FindNeighbors();
  void FindTails();
  void SetOption(int instruction, int option);
  bool Pays(int instruction) const;
  std::int64_t ToUnits(double energy_j) const;
  Node Visit(int instruction) const;
  Run RunMixed(int instruction, const Clock& clock, Nanoseconds begin) const;
  void MarkForVisit(int instruction);
  // Visits the marked instructions. Returns false if the plan is late.
  bool VisitMarked();
  void Replace(int instruction, const Node& node);
  Totals Sum() const;

  const Evaluator& evaluator_;
  Nanoseconds deadline_;
  std::vector<int> options_;
  std::vector<int> clocks_;  // [instruction] The clock of its option.

  double units_per_j_ = 0;
  std::int64_t change_units_ = 0;  // The energy of one clock change.
  // [option set][option]
  std::vector<std::vector<Run>> runs_;
  // [option set][previous clock] The option of an instruction that begins at the previous clock.
  std::vector<std::vector<int>> option_at_;
  // [instruction] The previous and next instruction with a clock on the same pp_rank. An iteration
  // repeats, so the first one follows the last one. kNone for an instruction without a clock.
  std::vector<int> previous_;
  std::vector<int> next_;
  std::vector<bool> is_first_;
  std::vector<int> first_successor_;  // [instruction] An index into successors_.
  std::vector<int> successors_;
  std::vector<int> last_;  // The instructions without successors.
  std::vector<Nanoseconds>
      tails_;  // [instruction] The least time from its end to the end of the plan.

  std::vector<Node> nodes_;
  std::int64_t energy_ = 0;
  Nanoseconds busy_ = 0;
  int switches_ = 0;
  Totals totals_;

  std::vector<std::uint64_t> marked_;  // A bit for each instruction: whether to visit it.
  Totals totals_before_;
  int switches_before_ = 0;
  std::vector<std::pair<int, Node>> nodes_before_;
  std::vector<Change> options_before_;
};

}  // namespace perseus::plan
