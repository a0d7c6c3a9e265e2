// The time that a message takes from one pp_rank to the next, from the rank logs. It is the time
// from the end of an instruction to the beginning of the instruction that waits for its output. It
// contains everything between these two instructions that a plan cannot avoid: the transfer, and
// the time until the receiver wakes up.
//
// If a receiver was still busy at the sender's end, this pair says nothing about messages, so it
// does not count. For each direction between two ranks, the median of the other pairs counts.
// Suppose two hosts have clocks that differ. Then messages of one direction look longer, and
// messages of the other direction look shorter by the same time. So the mean of both directions is
// right. To find which receivers waited, the difference of the two clocks is needed. As in NTP, it
// is estimated from the fastest message of each direction.
//
// A plan has one transfer time for all messages (schedule::FixedInstructions::p2p): the mean over
// the pairs of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/units.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// Returns the transfer time in the kept steps [first, last] of these ranks, which run `schedule`.
// Returns nullopt if no receiver waited for a message, because then no message delays a plan. Steps
// and instructions that are not recorded do not count.
std::optional<Nanoseconds> TransferTime(const JobLogs& logs,
                                        const std::set<protocol::RankId>& ranks,
                                        const schedule::Schedule& schedule, std::int64_t first,
                                        std::int64_t last);

// Instructions that wait for their input. An instruction needs the output of the previous stage (a
// backward: of the next stage). If the instruction begins before that stage has ended, it can only
// wait. So its recorded time contains a receive, and depends on other ranks, not only on its own
// clock.

// The instructions of one kind and chunk, on all GPUs of one pp_rank.
struct WaitingInstructions {
  InstructionKind kind = InstructionKind::kForward;
  int pp_rank = 0;
  int chunk = 0;
  int waited = 0;  // The number of instructions that waited.
  // The number of instructions that could be compared.
  int of = 0;
  // The mean wait of the instructions that waited, until their input was computed.
  Nanoseconds mean = 0;
};

// An instruction that begins earlier by at most this time does not count as waiting. Times on a
// stream are late by tens of microseconds, and this delay differs between ranks.
inline constexpr Nanoseconds kNoWait = 100 * kMicrosecond;

// Returns the groups in which at least a tenth of the instructions waited, in the kept steps
// [first, last] of these ranks, which run `schedule`. Compares only ranks of one host, because the
// clocks of two hosts may differ by more than the duration of such a wait. Changes no measurement.
std::vector<WaitingInstructions> FindWaits(const JobLogs& logs,
                                           const std::set<protocol::RankId>& ranks,
                                           const schedule::Schedule& schedule, std::int64_t first,
                                           std::int64_t last);

// Returns a warning with the groups and the remedy. Empty if there are no groups.
std::string DescribeWaits(const std::vector<WaitingInstructions>& waits);

}  // namespace perseus::tuner
