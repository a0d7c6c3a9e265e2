// One iteration of one pipeline under its disturbances: the options that it really runs, their time
// and their energy.
//
// A disturbance that begins or ends within the iteration affects the computations that begin while
// it is present. The begin of a computation depends only on those before it. So the answer is found
// by iteration: assume when all computations begin, evaluate, and repeat with the result until
// nothing changes. The n-th evaluation has the first n instructions right. Usually two or three are
// enough.
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
// Nothing may last longer (36 years). This leaves room for sums and differences of times.
inline constexpr Nanoseconds kLongestRun = kForever / 8;

// A disturbance within an iteration. Its times count from the begin of the iteration.
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

  // `options` are those of a plan. `chance` is the random variation. Fails (kInput) if the sum of
  // the durations does not fit 64-bit nanoseconds; the message names the disturbances.
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
