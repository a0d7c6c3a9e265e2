// An assignment: the plan or clocks that the ranks of a job have to follow, and the step from which
// on they follow it. One coordinator writes the assignment to a file, and all ranks read it. The
// node writes the assignments of the server to a directory of its own (assignment_places.h).
//
//   JOBDIR/assignment.json            what is in force, and from which step on
//   JOBDIR/plans/…                    the plan files that it names
//   JOBDIR/ranks/dp0-pp3-tp0.jsonl    what each rank records (rank_log.h)
//
// The interface is a directory because the ranks of a job share a directory anyway. No process has
// to run for this interface, and a person can read all of it. A coordinator replaces
// assignment.json as a whole, each time with a higher version. Ranks read the file several times a
// second. They adopt a new version at their first step that is not before `from_step`. So if
// `from_step` is far enough ahead, all ranks change at the same step. A rank that reads the file
// late changes late. Its log shows the delay, because each step names the version that the rank
// followed.
//
//   {"perseus_assignment": 1, "version": 6, "from_step": 110, "record": true,
//    "plan": "plans/6.json"}
//   {"perseus_assignment": 1, "version": 7, "from_step": 120, "record": true,
//    "plan": "plans/a.json", "plans": {"1": "plans/b.json"},
//    "server": {"job": "j-0123456789abcdef", "version": 3}}
//   {"perseus_assignment": 1, "version": 8, "from_step": 130, "record": true,
//    "clocks": [{"pp_rank": 0, "chunk": 0, "kind": "forward", "frequency_mhz": 1410}, …]}
//   {"perseus_assignment": 1, "version": 9, "from_step": 140, "record": false}
//   {"perseus_assignment": 1, "version": 10, "from_step": 150, "record": true, "own": true}
//
// A coordinator can die. So a temporary assignment (of a sweep or a verification) names the step at
// which it ends, `until_step`. From `until_step` on, ranks return to the lasting assignment by
// themselves. While a temporary assignment is in force, JOBDIR/assignment-before.json contains the
// lasting assignment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/runtime/protocol/job_directory/assignment_places.h"

namespace perseus::protocol {

// One clock for all instructions of a kind, in any order. A sweep uses it.
struct KindClock {
  int pp_rank = 0;
  int chunk = 0;  // The number among the stages of this pp_rank.
  InstructionKind kind = InstructionKind::kForward;
  int frequency_mhz = 0;  // 1 to kHighestFrequencyMhz.
  friend bool operator==(const KindClock&, const KindClock&) = default;
};

// The job and version on the server from which an assignment came. The server counts its versions
// separately, because every coordinator adds versions to the directory.
struct ServerOrigin {
  std::string job;           // The server's id of the job.
  std::int64_t version = 1;  // Starts at 1 in each job.
  friend bool operator==(const ServerOrigin&, const ServerOrigin&) = default;
};

struct Assignment {
  std::int64_t version = 1;  // Starts at 1. Ranks ignore a version that is not higher than theirs.
  std::int64_t from_step = 0;
  bool record = true;  // Whether each rank writes its steps to its log.
  // At most one of the three ways is set: plans, clocks, or own. If none is set, the ranks use the
  // default clocks. Plan files are relative to the directory.
  std::string plan = {};                  // For all pipelines that `plans` does not list.
  std::map<int, std::string> plans = {};  // By dp_rank.
  std::vector<KindClock> clocks = {};
  bool own = false;  // Each rank uses its own plan (PERSEUS_PLAN, perseus_use_plan), if it has one.
  // The step at which a temporary assignment ends. Then the lasting assignment is in force again.
  std::optional<std::int64_t> until_step = std::nullopt;  // > from_step.
  std::optional<ServerOrigin> server =
      std::nullopt;  // Empty: a coordinator in this directory wrote it.

  // Returns the plan of a pipeline. Empty: the pipeline has no plan.
  const std::string& PlanOf(int dp_rank) const {
    const auto found = plans.find(dp_rank);
    return found == plans.end() ? plan : found->second;
  }
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

std::string FormatAssignment(const Assignment& assignment);
// Fails (kInput) with an error such as "name: clocks[3].frequency_mhz is ... (remedy)".
Result<Assignment> ParseAssignment(std::string_view text, std::string_view name);

// Reads assignment.json in both places. Returns the assignment with the higher version, or nullopt
// if neither file exists yet.
Result<std::optional<Assignment>> ReadAssignment(const AssignmentPlaces& places);
// The same for FindPlaces(job_directory).
Result<std::optional<Assignment>> ReadAssignment(const std::filesystem::path& job_directory);
// Returns the place that has a plan file which the assignment names. The plans of the server are in
// the place of the node, also if verify has restored the assignment in the job directory.
const std::filesystem::path& PlaceOfPlan(const AssignmentPlaces& places,
                                         const Assignment& assignment, const std::string& plan);
// JOBDIR/assignment-before.json: the lasting assignment while a temporary assignment interrupts it.
// At other times, the file has no meaning, and usually does not exist.
std::filesystem::path AssignmentBeforePath(const std::filesystem::path& job_directory);
Result<std::optional<Assignment>> ReadAssignmentBefore(const std::filesystem::path& job_directory);
// Replaces the file atomically. If this fails, the previous file remains.
Result<void> WriteAssignment(const std::filesystem::path& job_directory,
                             const Assignment& assignment);

// Writes the assignments of a job: numbers them, and restores the previous lasting assignment.
//
// JOBDIR/assignment-before.json contains the lasting assignment from the first temporary assignment
// on. So if a coordinator is killed, the next coordinator can restore the lasting assignment.

// How long after a write all ranks have read an assignment. Ranks read the file at intervals, and a
// network file system shows it late to other hosts. StepsAhead returns how many steps ahead
// `from_step` has to be.
inline constexpr double kAssignmentDelaySeconds = 1.0;
std::int64_t StepsAhead(double assignment_delay_s, double step_time_s);

class AssignmentWriter {
 public:
  // Continues the work of the previous coordinator. Writes into the job directory. Fails (kSystem)
  // while another process is the coordinator of this directory (JOBDIR/coordinator.lock).
  static Result<AssignmentWriter> Open(const AssignmentPlaces& places);
  static Result<AssignmentWriter> Open(const std::filesystem::path& job_directory);
  // The same for a node that may not write into the job directory: writes into places.node. Cannot
  // lock the job directory, so another coordinator may begin at any time (assignment_places.h).
  static Result<AssignmentWriter> OpenForNode(const AssignmentPlaces& places);

  // Makes the next version higher than `version`. The caller needs this if somebody deleted or
  // replaced the file: ranks may then follow a version that is higher than the version in the file.
  void CountFrom(std::int64_t version);
  // Makes the assignment start at this step. Returns the version that ranks will report.
  Result<std::int64_t> Write(Assignment assignment, std::int64_t from_step);
  // Restores the previous lasting assignment. If none existed, restores each rank's own plan. The
  // restored assignment begins at step 0, so that it also applies to ranks that restart.
  Result<std::int64_t> Restore();
  // Whether an assignment other than before() is in force, from this writer or from a writer that
  // died.
  bool HasToRestore() const { return is_kept_ || version_ != first_version_; }
  // Writes plans/NAME.json. Returns the path for an assignment's `plan`.
  Result<std::string> AddPlan(const std::string& name, const std::string& plan) const;
  // Deletes a plan that no assignment names any more, by the path from AddPlan. If it cannot be
  // deleted, it stays.
  void RemovePlan(const std::string& path) const;

  // The lasting assignment, even if a temporary assignment hides it. If none was ever written,
  // `own`.
  const Assignment& before() const { return before_; }
  const std::filesystem::path& job_directory() const { return places_.job; }
  // The version of the last assignment, which this writer or an earlier one wrote. 0: none.
  std::int64_t version() const { return version_; }

 private:
  AssignmentWriter(AssignmentPlaces places, std::filesystem::path place)
      : places_(std::move(places)), place_(std::move(place)) {}
  static Result<AssignmentWriter> Continue(AssignmentWriter writer);

  AssignmentPlaces places_;
  std::filesystem::path place_;  // One of places_: where this writer writes.
  FileDescriptor lock_;
  Assignment before_;
  bool is_kept_ = false;  // Whether before_ is in assignment-before.json.
  std::int64_t version_ = 0;
  std::int64_t first_version_ = 0;
};

}  // namespace perseus::protocol
