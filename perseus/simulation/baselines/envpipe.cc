// EnvPipe (Choi et al., Energy-Efficient Pipeline Training of Large Models, ATC '23, section 4).
//
//      F0            B..                 The outer envelope: the first forward of each stage, all
//        F0        B   B                 of the last stage, and the last backward of each stage. It
//          F0 ... B      B(last)         stays at maximum frequency. The rest has to fit inside.
//
// The rest starts at its least-energy clock. Each step looks at a critical path. If the path leaves
// the envelope, the instructions with the lowest clock on the path are raised by one step
// ("balanced" reconfiguration). EnvPipe assumes that the last stage is the slowest. Otherwise, the
// envelope may never become critical: all instructions end at maximum frequency, and EnvPipe's loop
// does not end. If nothing on the path can be raised, this implementation adds a note and returns
// the plan of that moment. It does the same if the search takes too long.
//
// If there are several critical paths, this implementation uses one of them. Like EnvPipe's own
// implementation, it stays on the same rank if possible. It goes to another rank only if the
// instruction waited for that rank.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/simulation/baselines/policy.h"

namespace perseus::baselines {
namespace {

// The most rounds, multiplied by the number of instructions. A search of this size takes seconds.
constexpr std::size_t kMostEnvPipeEffort = 200'000'000;

bool IsBackward(InstructionKind kind) {
  return kind == InstructionKind::kBackward || kind == InstructionKind::kBackwardInput ||
         kind == InstructionKind::kBackwardWeight;
}

class Reconfiguration {
 public:
  explicit Reconfiguration(const plan::Planner& planner)
      : planner_(planner),
        graph_(planner.graph()),
        evaluator_(planner.graph(), {planner.model().blocking_power_w, 0}),
        predecessors_(graph_.instructions.size()) {
    for (const schedule::Dependency& dependency : graph_.dependencies) {
      predecessors_[At(dependency.to)].push_back(&dependency);
    }
    for (const schedule::OptionSet& set : graph_.option_sets) by_clock_.push_back(ByClock(set));
    MarkEnvelope();
  }

  Result<PolicyPoints> Run() {
    std::vector<int> options;  // Indices into by_clock_.
    for (std::size_t i = 0; i < graph_.instructions.size(); ++i) {
      options.push_back(in_envelope_[i] ? Highest(i) : LeastEnergy(i));
    }
    PolicyPoints offered;
    // Each round raises an instruction, so the loop ends. A round evaluates all instructions.
    const std::size_t most_rounds = kMostEnvPipeEffort / graph_.instructions.size() + 1;
    for (std::size_t round = 0;; ++round) {
      if (round == most_rounds) {
        offered.note = fmt::format(
            "stopped after {} rounds: this plan is not EnvPipe's last one (use fewer microbatches)",
            round);
        break;
      }
      const std::vector<int> path = CriticalPath(evaluator_.Evaluate(Chosen(options)));
      const bool is_envelope =
          std::ranges::all_of(path, [&](int instruction) { return in_envelope_[At(instruction)]; });
      if (is_envelope) break;
      if (!RaiseLowest(path, options)) {
        offered.note =
            "the critical path never became the outer envelope, and everything on it is at maximum "
            "frequency: EnvPipe would not end (it assumes that the last stage is the slowest)";
        break;
      }
    }
    offered.points.push_back(MakePoint(planner_, "outer envelope", Chosen(options)));
    return offered;
  }

 private:
  // The options of the set, the lowest clock first. If clocks are equal, only the fastest option.
  static std::vector<int> ByClock(const schedule::OptionSet& set) {
    std::vector<int> order;
    for (int i = 0; At(i) < set.options.size(); ++i) order.push_back(i);
    std::ranges::sort(order, {}, [&](int i) {
      return std::pair(set.options[At(i)].frequency_mhz, set.options[At(i)].time);
    });
    const auto has_same_clock = [&](int a, int b) {
      return set.options[At(a)].frequency_mhz == set.options[At(b)].frequency_mhz;
    };
    order.erase(std::unique(order.begin(), order.end(), has_same_clock), order.end());
    return order;
  }

  const schedule::OptionSet& SetOf(std::size_t instruction) const {
    return graph_.option_sets[At(graph_.instructions[instruction].option_set)];
  }
  const std::vector<int>& OrderOf(std::size_t instruction) const {
    return by_clock_[At(graph_.instructions[instruction].option_set)];
  }
  int Highest(std::size_t instruction) const {
    return static_cast<int>(OrderOf(instruction).size()) - 1;
  }
  int LeastEnergy(std::size_t instruction) const {
    const std::vector<int>& order = OrderOf(instruction);
    const auto least = std::ranges::min_element(
        order, {}, [&](int i) { return SetOf(instruction).options[At(i)].energy_j; });
    return static_cast<int>(least - order.begin());
  }
  double ClockOf(int instruction, const std::vector<int>& options) const {
    return SetOf(At(instruction))
        .options[At(OrderOf(At(instruction))[At(options[At(instruction)])])]
        .frequency_mhz;
  }

  std::vector<int> Chosen(const std::vector<int>& options) const {
    std::vector<int> chosen;
    for (std::size_t i = 0; i < options.size(); ++i) {
      chosen.push_back(OrderOf(i)[At(options[i])]);
    }
    return chosen;
  }

  void MarkEnvelope() {
    in_envelope_.assign(graph_.instructions.size(), false);
    for (std::size_t rank = 0; rank < graph_.pp_rank_orders.size(); ++rank) {
      const std::vector<int>& order = graph_.pp_rank_orders[rank];
      const auto kind = [&](int instruction) { return graph_.options_of(instruction).kind; };
      const auto first = std::ranges::find(order, InstructionKind::kForward, kind);
      if (first != order.end()) in_envelope_[At(*first)] = true;
      const auto last = std::find_if(order.rbegin(), order.rend(), [&](int instruction) {
        return IsBackward(kind(instruction));
      });
      if (last != order.rend()) in_envelope_[At(*last)] = true;
      for (const int instruction : order) {
        const bool is_fixed = graph_.options_of(instruction).options.size() < 2;
        if (is_fixed || rank + 1 == graph_.pp_rank_orders.size())
          in_envelope_[At(instruction)] = true;
      }
    }
  }

  // A critical path, from its end to its beginning.
  std::vector<int> CriticalPath(const plan::Evaluation& evaluation) const {
    const auto end = [&](int instruction) {
      return evaluation.starts[At(instruction)] + evaluation.durations[At(instruction)];
    };
    int instruction = 0;
    while (end(instruction) != evaluation.time) ++instruction;
    std::vector<int> path{instruction};
    while (evaluation.starts[At(instruction)] > 0) {
      int next = -1;
      for (const schedule::Dependency* dependency : predecessors_[At(instruction)]) {
        if (end(dependency->from) + dependency->delay != evaluation.starts[At(instruction)])
          continue;
        const bool same_rank = graph_.instructions[At(dependency->from)].pp_rank ==
                               graph_.instructions[At(instruction)].pp_rank;
        if (next < 0 || same_rank) next = dependency->from;
      }
      instruction = next;
      path.push_back(instruction);
    }
    return path;
  }

  bool RaiseLowest(const std::vector<int>& path, std::vector<int>& options) const {
    double lowest = 0;
    for (const int instruction : path) {
      if (options[At(instruction)] == Highest(At(instruction))) continue;
      const double clock = ClockOf(instruction, options);
      if (lowest == 0 || clock < lowest) lowest = clock;
    }
    bool is_raised = false;
    for (const int instruction : path) {
      if (options[At(instruction)] == Highest(At(instruction))) continue;
      if (ClockOf(instruction, options) != lowest) continue;
      ++options[At(instruction)];
      is_raised = true;
    }
    return is_raised;
  }

  const plan::Planner& planner_;
  const schedule::InstructionGraph& graph_;
  plan::Evaluator evaluator_;
  std::vector<std::vector<const schedule::Dependency*>> predecessors_;
  std::vector<std::vector<int>> by_clock_;  // [option set]
  std::vector<bool> in_envelope_;
};

class EnvPipe : public Policy {
 public:
  std::string_view name() const override { return "EnvPipe"; }
  Result<PolicyPoints> Points(const plan::Planner& planner,
                              std::span<const Nanoseconds> /*times*/) const override {
    return Reconfiguration(planner).Run();
  }
};

}  // namespace

std::unique_ptr<Policy> MakeEnvPipe() { return std::make_unique<EnvPipe>(); }

}  // namespace perseus::baselines
