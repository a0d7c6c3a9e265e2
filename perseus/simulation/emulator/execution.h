// One iteration of one pipeline under what disturbs it: which options it really runs, and how long
// and at what cost.
//
// A disturbance that begins or ends within the iteration is felt by the computations that begin
// while it is there. When a computation begins depends on those before it alone, so the answer is
// found by assuming when they all begin, evaluating, and assuming anew until nothing moves: the
// n-th evaluation has the first n instructions right, and two or three have them all, as a rule.
#pragma once

#include <compare>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {

inline constexpr Nanoseconds kForever = std::numeric_limits<Nanoseconds>::max();

// A disturbance, as an iteration has it: times are since the iteration's beginning.
struct Presence {
  int disturbance = 0;  // An index.
  Nanoseconds from = 0;
  Nanoseconds until = kForever;

  // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in it.
  auto operator<=>(const Presence&) const = default;
};

struct Execution {
  PipelineRun run;
  std::vector<bool> felt;  // By presence: whether anything begins while it is there.
};

// Keeps references to both.
class Executor {
 public:
  Executor(const plan::Planner& planner, const std::vector<Disturbance>& disturbances);

  // `options` is a plan's; `chance` is what varies besides. Fails (kInput) if the instructions'
  // durations add up to more than nanoseconds hold, naming the disturbances.
  Result<Execution> Execute(const std::vector<int>& options, std::span<const Presence> presences,
                            const plan::Variation& chance = {}) const;

  // Whether an instruction may be slowed: not if it is a fixed one.
  bool IsComputation(int instruction) const;

 private:
  struct Disturbed {
    std::vector<int> options;
    plan::Variation variation;
    std::vector<bool> felt;
  };
  Disturbed Apply(const std::vector<int>& options, std::span<const Presence> presences,
                  const plan::Variation& chance, const std::vector<Nanoseconds>& starts) const;
  bool Concerns(const Disturbance& disturbance, int instruction) const;
  int Throttled(int option_set, int option, double frequency_mhz) const;
  Result<void> CheckFits(const plan::Variation& variation,
                         std::span<const Presence> presences) const;
  std::string NamesOf(std::span<const Presence> presences) const;

  const schedule::InstructionGraph& graph_;
  const std::vector<Disturbance>& disturbances_;
  plan::Evaluator evaluator_;
  std::vector<double> longest_;  // Of each option set, in nanoseconds.
  double delays_ = 0;            // Of all dependencies.
};

// "events.toml:3", or else "the straggler of dp_rank 2".
std::string NameOf(const Disturbance& disturbance);

}  // namespace perseus::emulator
