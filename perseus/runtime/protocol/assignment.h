// What a job's ranks are told to do: a file that one coordinator writes and all ranks read.
//
//   JOBDIR/assignment.json          what is in force, and from which step on
//   JOBDIR/plans/…              the plan files that it names
//   JOBDIR/ranks/dp0-pp3-tp0.jsonl what each rank records (rank_log.h)
//
// A directory, since a cluster's jobs share one anyway; nothing has to run for it, and a person can
// read all of it. A coordinator replaces assignment.json as a whole, with a higher version each
// time; ranks look at it several times a second and adopt what is new at their first step that is
// not before `from_step`. All ranks thus change at the same step if `from_step` lies far enough
// ahead; one that hears of it late changes late, and its records say so (each step names the
// version it followed).
//
//   {"perseus_assignment": 1, "version": 6, "from_step": 110, "record": true, "plan":
//   "plans/6.json"}
//   {"perseus_assignment": 1, "version": 7, "from_step": 120, "record": true, "plan":
//   "plans/a.json",
//    "plans": {"1": "plans/b.json"}, "server": {"job": "j-0123456789abcdef", "version": 3}}
//   {"perseus_assignment": 1, "version": 8, "from_step": 130, "record": true,
//    "clocks": [{"pp_rank": 0, "chunk": 0, "kind": "forward", "frequency_mhz": 1410}, …]}
//   {"perseus_assignment": 1, "version": 9, "from_step": 140, "record": false}
//   {"perseus_assignment": 1, "version": 10, "from_step": 150, "record": true, "own": true}
//
// A coordinator can die. Assignment of the kind that it means to take back (a sweep's, a
// verification's) name the step until which they hold, `until_step`; from there on ranks do what
// they did before, without anybody telling them. What was in assignment.json before them is kept in
// JOBDIR/assignment-before.json until lasting assignment are given again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"

namespace perseus::protocol {

// One clock for all instructions of a kind, whatever their order: how a profiler asks.
struct KindClock {
  int pp_rank = 0;
  int chunk = 0;  // Of the stages on that rank.
  InstructionKind kind = InstructionKind::kForward;
  int frequency_mhz = 0;  // 1 to 1,000,000.
  friend bool operator==(const KindClock&, const KindClock&) = default;
};

// Whose assignment these are where they came from a server: its versions are counted apart from
// those of the directory, which every coordinator adds to.
struct ServerOrigin {
  std::string job;           // The server's id of it.
  std::int64_t version = 1;  // From 1 in each job.
  friend bool operator==(const ServerOrigin&, const ServerOrigin&) = default;
};

struct Assignment {
  std::int64_t version = 1;  // From 1; ranks ignore what is not higher than what they have.
  std::int64_t from_step = 0;
  bool record = true;  // Whether steps are written to the rank's log.
  // Plan files, relative to the directory. At most one of plans, clocks and own is there; none: the
  // clocks that the GPUs had before.
  std::string plan = {};                  // Of all pipelines that `plans` does not list.
  std::map<int, std::string> plans = {};  // By pipeline.
  std::vector<KindClock> clocks = {};
  bool own = false;  // Each rank's own plan (PERSEUS_PLAN, perseus_use_plan), if it has one.
  // Temporary: from there on the lasting assignment of before, or the rank's own plan.
  std::optional<std::int64_t> until_step = std::nullopt;  // > from_step.
  std::optional<ServerOrigin> server = std::nullopt;      // Empty: of a coordinator here.

  // Empty: none.
  const std::string& PlanOf(int pipeline) const {
    const auto found = plans.find(pipeline);
    return found == plans.end() ? plan : found->second;
  }
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

std::string FormatAssignment(const Assignment& assignment);
// Errors (kInput): "name: clocks[3].frequency_mhz is ... (remedy)".
Result<Assignment> ParseAssignment(std::string_view text, std::string_view name);

// Reads JOBDIR/assignment.json; nothing if there is none yet.
Result<std::optional<Assignment>> ReadAssignment(const std::filesystem::path& job_directory);
// JOBDIR/assignment-before.json: the lasting assignment that temporary ones interrupt; nothing if
// none do.
std::filesystem::path AssignmentBeforePath(const std::filesystem::path& job_directory);
Result<std::optional<Assignment>> ReadAssignmentBefore(const std::filesystem::path& job_directory);
// In one step. A failure leaves what was there.
Result<void> WriteAssignment(const std::filesystem::path& job_directory,
                             const Assignment& assignment);

}  // namespace perseus::protocol
