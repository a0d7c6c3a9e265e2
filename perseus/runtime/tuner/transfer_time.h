// What the rank logs show of the messages between ranks.
//
// The time that a message takes from one pp_rank to the next, from the rank logs: from the end of
// an instruction to the beginning of the instruction that waits for its output. It contains
// everything between the two that a plan cannot avoid: the transfer, and the time until the
// receiver wakes up.
//
// A receiver that was still busy at the sender's end says nothing about messages, so it does not
// count. The median of the others counts for each direction between two ranks. Between two hosts,
// a wrong clock makes messages of one direction look longer, and of the other shorter by as much.
// So the mean of both directions is right. To find which receivers waited, the difference of the
// two clocks is estimated from the fastest message of each direction, as NTP does.
//
// A plan has one such time for all messages (schedule::FixedInstructions::p2p): the mean over the
// pairs of ranks.
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
// Returns nullopt if no receiver waited for a message: then no message delays a plan. Steps and
// instructions that are not recorded do not count.
std::optional<Nanoseconds> TransferTime(const JobLogs& logs,
                                        const std::set<protocol::RankId>& ranks,
                                        const schedule::Schedule& schedule, std::int64_t first,
                                        std::int64_t last);

// Instructions that wait for their input: an instruction that begins before the previous stage (for
// a backward, the next stage) has ended the instruction whose output it needs can only wait. So its
// recorded time contains a receive, and depends on other ranks, not only on its clock.

// The instructions of a kind and chunk of all GPUs of a pp_rank.
struct WaitingInstructions {
  InstructionKind kind = InstructionKind::kForward;
  int pp_rank = 0;
  int chunk = 0;
  int waited = 0;        // How many of them waited.
  int of = 0;            // How many of them could be compared.
  Nanoseconds mean = 0;  // The mean wait of those that waited, until the input was computed.
};

// An instruction may seem to begin earlier by so much. Times on a stream are late by tens of
// microseconds, which differ between ranks.
inline constexpr Nanoseconds kNoWait = 100 * kMicrosecond;

// Returns the groups in which at least a tenth of the instructions waited, in the kept steps
// [first, last] of these ranks, which run `schedule`. Compares only ranks of one host, because the
// clocks of two hosts differ by more than such waits may last. Changes no measurement.
std::vector<WaitingInstructions> FindWaits(const JobLogs& logs,
                                           const std::set<protocol::RankId>& ranks,
                                           const schedule::Schedule& schedule, std::int64_t first,
                                           std::int64_t last);

// A warning with the groups and the remedy. Empty without groups.
std::string DescribeWaits(const std::vector<WaitingInstructions>& waits);

}  // namespace perseus::tuner
