// Finds better prices for SwitchBound than those of the relaxed optimum: a search over flows that
// raises the bound.
//
// PROBLEM
//   The bound is a concave function of the flow (a minimum of linear functions, one for each choice
//   of clocks). At a flow x, the clocks that attain the bound give a supergradient. For each unit
//   of flow on arc a, it is the duration t_a of the arc. For each unit of the value of the flow, it
//   is -T0, where T0 is the deadline. The prices of the relaxed optimum assume that every
//   instruction chooses its own clock. With few changes, many instructions share one clock, and the
//   best prices distribute the flow differently.
//
// IDEA
//   A flow on a directed acyclic network is a distribution over paths from source to sink. Multiply
//   the flow of every path by exp(eta * (length of the path - T0)): paths that are too long become
//   more expensive. This is a step of mirror ascent with the relative entropy as distance (Kivinen
//   & Warmuth 1997). After such a step, the flow is still non-negative and conserved, so every step
//   gives a valid bound. The number of paths is exponential. So the flow of all paths is stored as
//   one share for each arc: its part of the flow through its tail. Weight pushing (Takimoto &
//   Warmuth 2003) updates the shares in one pass over the arcs:
//
//       Z_v  = sum over arcs a = (v, w):  share_a * exp(eta * t_a) * Z_w            (backward)
//       share_a <- share_a * exp(eta * t_a) * Z_w / Z_v
//       lambda  <- lambda * Z_source * exp(-eta * T0)
//
//   The durations for one choice of clocks are a poor gradient, because the best clocks jump
//   between a few choices from step to step. So a step uses a moving average of the durations, and
//   starts from the best flow so far. This is the volume algorithm (Barahona & Anbil 2000), with
//   the relative entropy as its distance. The average of the durations also tends to a solution of
//   the relaxed problem.
//
//   The first steps ignore the windows of the bound (switch_bound.h), and the last steps keep them.
//   A step with windows takes three to twenty times as long as a step without them. The bound with
//   windows is also a concave function of the flow: it is a minimum over fewer choices.
//
// ALTERNATIVES
//   Branching divides the problem: in one part, an instruction may use only its slower clocks, and
//   in the other part only its faster clocks. Each part has its own ascent, the smaller bound is
//   the result, and each part can be divided again. For GPT-3 on A100 with 12 microbatches and 2
//   changes, 16 such parts close half of the gap between the plan and its bound in 0.3 s. For
//   twelve other jobs and limits, 16 to 32 parts gain 0.01 to 0.15 points of saving in 0.3 to 16 s.
//
//   Column generation needs a linear-programming solver, which the planner does not have, and its
//   master problem has a row for every dependency. After a subgradient step in the flows, flow is
//   no longer conserved. The projection back needs the solution of a network problem at every step.
//
// Deterministic: it uses only +, -, *, / on doubles. It uses no function of the math library,
// because the last bits of such functions differ between machines.
//
// REFERENCES
//   J. Kivinen and M. K. Warmuth, Exponentiated Gradient versus Gradient Descent for Linear
//     Predictors, Information and Computation 132 (1997).
//   E. Takimoto and M. K. Warmuth, Path Kernels and Multiplicative Updates, JMLR 4 (2003).
//   F. Barahona and R. Anbil, The Volume Algorithm, Mathematical Programming 87 (2000).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "perseus/planning/few_switches/switch_bound.h"
#include "perseus/planning/frontier/network.h"

namespace perseus::few_switches {

// A flow, stored as the share of each arc in the flow through the tail of the arc. The shares of
// the arcs out of a node are positive and add up to 1.
struct PathFlow {
  std::vector<double> shares;  // [arc]
  double value = 0;            // The flow from source to sink, in microwatts.
};

class PriceAscent {
 public:
  // Starts at `start`. Keeps a reference to `bound`.
  PriceAscent(SwitchBound& bound, const Prices& start);

  // How many steps to try: first steps without windows, and then, if the bound has windows, steps
  // with windows.
  struct Effort {
    int steps = 0;
    int window_steps = 0;          // The maximum number of steps with windows.
    std::int64_t window_work = 0;  // The work of steps with windows after which no step begins.
  };
  // Tries to raise the bound for at most `changes` changes.
  void Climb(int changes, const Effort& effort);

  // The best answer for the number of changes of the last Climb.
  const SwitchBound::Answer& best() const { return best_; }
  // [step][pp_rank] The clocks that attained the bound at the latest steps without windows.
  // Mixtures of these clocks are near a solution of the relaxed problem.
  const std::vector<std::vector<std::vector<int>>>& latest() const { return latest_; }

 private:
  void Ascend(int changes, int steps, SwitchBound::Windows windows,
              std::int64_t work = std::numeric_limits<std::int64_t>::max());
  Prices RoundToPrices(const PathFlow& flow) const;
  PathFlow Step(const PathFlow& from, double eta) const;
  // [instruction] The durations at the clocks of the answer.
  std::vector<double> DurationsOf(const SwitchBound::Answer& answer) const;

  SwitchBound& bound_;
  const frontier::Network& network_;
  std::vector<std::int32_t> order_;     // Arcs in topological order of their tails.
  std::vector<std::int32_t> last_out_;  // [node] Its last arc in order_; -1 at the sink.
  std::vector<double> delays_;          // [arc] The fixed durations; 0 for instructions.
  PathFlow flow_;                       // The best flow so far.
  // [instruction] The moving average of the durations in ns. It is near a solution of the relaxed
  // problem.
  std::vector<double> durations_;
  SwitchBound::Answer best_;
  Prices best_prices_;
  std::vector<std::vector<std::vector<int>>> latest_;
};

}  // namespace perseus::few_switches
