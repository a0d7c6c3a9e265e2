// When the clock of a pp_rank may change: how long it stays, and at which distance from operations.
//
// A change begins when the pp_rank requests it: at the end of the previous instruction that has a
// clock (plan/evaluation.h). It takes as long as the switch latency or the stall, whichever is
// longer. An iteration repeats, so the last change of an iteration and the first change of the next
// one are neighbors, too, and an operation at the end of an iteration is near the beginning of the
// next one.
//
// A rule depends on times, and times depend on all clocks. So the search (segment_search.h) prices
// a plan that breaks a rule by the time by which it does, as it prices a plan that is late. The
// bound (switch_bound.h) uses only what holds for every plan: the most changes that fit into an
// iteration, and changes that are always requested inside a quiet zone.
//
// Thread safety: the values do not change after construction.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::few_switches {

// What a pp_rank does besides computing. kP2p: the transfers that it sends or receives. The others
// are its instructions of that kind.
enum class Operation { kP2p, kAllReduce, kLoad, kOptimizer };

// "p2p", "all_reduce", "load", "optimizer".
std::string_view Name(Operation operation);
std::optional<Operation> OperationNamed(std::string_view name);
std::vector<std::string_view> OperationNames();

// A clock changes at least `distance` before and after each such operation of its pp_rank.
struct QuietZone {
  Operation operation = Operation::kP2p;
  Nanoseconds distance = 0;
};

struct ChangeRules {
  Nanoseconds min_dwell = 0;  // From one change of a pp_rank to its next.
  std::vector<QuietZone> quiet_zones;

  bool IsNone() const { return min_dwell == 0 && quiet_zones.empty(); }
};

// Fails (kInput) if a quiet zone names an operation that the job does not have.
Result<void> CheckRules(const schedule::InstructionGraph& graph, const ChangeRules& rules);

// [instruction]
struct Moments {
  std::span<const Nanoseconds> starts;
  std::span<const Nanoseconds> ends;
  Nanoseconds time = 0;  // Of the iteration.
};

class RuleChecker {
 public:
  // Keeps no reference to the graph.
  RuleChecker(const schedule::InstructionGraph& graph, const ChangeRules& rules,
              const plan::ExecutionModel& model);

  bool has_rules() const { return has_rules_; }
  // By how much time the changes of the pp_rank break the rules, in total. 0: they keep them.
  // `changing` are the instructions that begin with another clock than the one before, in order.
  // There are none, or at least two.
  Nanoseconds Breach(int pp_rank, std::span<const int> changing, const Moments& moments) const;
  // The same for all pp_ranks of a plan. `graph` is the one of the constructor.
  Nanoseconds Breach(const schedule::InstructionGraph& graph, std::span<const int> options,
                     const plan::Evaluation& evaluation) const;
  // Whether a change to the clock of this instruction breaks a rule in every plan.
  bool IsForbidden(int instruction) const {
    return !forbidden_.empty() && forbidden_[static_cast<std::size_t>(instruction)];
  }

 private:
  // A transfer of `length` begins when the instruction ends. Any other operation is the
  // instruction.
  struct Entry {
    int instruction = 0;
    Nanoseconds length = 0;
  };
  // Operations that follow each other in time.
  struct Stream {
    bool is_transfer = false;
    Nanoseconds distance = 0;
    Nanoseconds longest = 0;  // The longest transfer.
    std::vector<Entry> entries;
  };

  static constexpr int kNone = -1;

  void FindPrevious(const schedule::InstructionGraph& graph);
  // When the pp_rank requests the clock of the instruction.
  Nanoseconds RequestOf(int instruction, const Moments& moments) const;
  void AddTransfers(const schedule::InstructionGraph& graph, Nanoseconds distance);
  void AddInstructions(const schedule::InstructionGraph& graph, const QuietZone& zone);
  void FindForbidden(const schedule::InstructionGraph& graph, const ChangeRules& rules);
  Nanoseconds BreachOfStream(const Stream& stream, Nanoseconds change,
                             const Moments& moments) const;

  bool has_rules_ = false;
  Nanoseconds min_dwell_ = 0;
  Nanoseconds takes_ = 0;  // A change, from its request.
  // [instruction] the previous instruction of its pp_rank that has a clock. The first one follows
  // the last one of the iteration before. kNone if it has no clock.
  std::vector<int> previous_;
  std::vector<std::vector<Stream>> streams_;  // [pp_rank]
  std::vector<bool> forbidden_;               // [instruction]; empty if none is.
};

}  // namespace perseus::few_switches
