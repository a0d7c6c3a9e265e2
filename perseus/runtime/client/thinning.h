// Chooses which clock changes of a plan a rank skips if the agent limits them.
//
// The problem. A rank repeats its n instructions every step. The plan has a clock c[i] for each.
// The rank may raise clocks to r[i] >= c[i], so that no instruction is slower than the plan says. A
// change is an i with r[i] != r[i - 1], where the last instruction of a step comes before the first
// one of the next. Find r with the least loss of energy whose changes keep the limit.
//
// The limit is the agent's token bucket (perseus/runtime/agent/gpu_worker.h): it holds one second
// of changes and at least one, every change takes a token, and a change to a lower clock waits if
// there is none. A limit on the changes of a whole step would not do: a step may last many seconds,
// and its changes may come in bursts that the bucket does not hold.
//
// The method is greedy. Instructions in a row with the same clock are a run. Merging a run into its
// next higher neighbor removes one change, or two if both neighbors have the same clock. While a
// simulation of the bucket over two steps finds a change that would wait, the method merges the run
// that loses least per removed change, among the runs that began since the bucket was last full.
// A later merge may leave room for what an earlier one removed. So then the method tries to lower
// each run of the plan again, first those that lose most, and keeps what the bucket allows. With m
// changes, both parts simulate the bucket O(m) times, so the time is O(m^2): 0.6 ms for 190 changes
// and 0.2 s for 3,900 on one core, when the plan, the share or the time of a step has changed.
//
// The loss. For each kind and chunk, the plan has the time t and the energy e at the clocks that it
// uses. At a clock f' that it does not use, the nearest one f counts with e f'/f and t f/f'. A
// faster instruction waits longer, so the loss is the difference of the effective energy e - P t
// with the blocking power P. Without energies, it is the time multiplied with the relative
// difference of the clocks. Only the choice depends on this estimate. That no clock is below the
// plan's does not.
//
// Alternative that we rejected: dynamic programming over (run, clock, number of changes) is exact
// for a limit on the number of changes of a step, in time O(m d k) for d clocks and k changes. But
// it cannot see the bucket, whose tokens would be a further dimension. On random plans of up to
// seven instructions, the method loses 1.5 % more energy in total than the best answer
// (thinning_test.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/client/clock_table.h"

namespace perseus::client {

// The clocks that the rank requests for a table, instead of those of the table.
struct ThinnedPlan {
  std::uint64_t table = 0;          // ClockTable::number. 0: of no table.
  std::vector<PlannedClock> order;  // As that of the table, with the same or higher clocks.
  int changes = 0;                  // Of the table, in a step.
  int skipped = 0;                  // Of these.

  ThinnedPlan* next = nullptr;  // For the owner's list.
};

struct ChangeLimit {
  double per_s = 0;           // Above 0.
  Nanoseconds step_time = 0;  // From the begin of a step to the begin of the next. Above 0.
};

// `sm_clocks_mhz`: those of the GPU, ascending. Plans may have clocks between them (NearestFaster).
// Requires Source::kPlan and one cost for each instruction.
ThinnedPlan Thin(const ClockTable& table, std::span<const int> sm_clocks_mhz,
                 const ChangeLimit& limit);

// Whether the agent would let none of these changes wait, if a step repeats them. For each, whether
// it is to a lower clock, and when it is requested (ascending, from 0 to below the time of a step).
struct TimedChange {
  Nanoseconds at = 0;
  bool is_lower = false;
};
bool KeepsLimit(std::span<const TimedChange> changes, const ChangeLimit& limit);

}  // namespace perseus::client
