// An assignment: what the ranks of a job have to follow, and from which step on. One coordinator
// writes it to a file, and all ranks read it.
//
//   JOBDIR/assignment.json            what is in force, and from which step on
//   JOBDIR/plans/…                    the plan files that it names
//   JOBDIR/ranks/dp0-pp3-tp0.jsonl    what each rank records (rank_log.h)
//
// The interface is a directory because the ranks of a job share one anyway. No process has to run
// for it, and a person can read all of it. A coordinator replaces assignment.json as a whole, each
// time with a higher version. Ranks read it several times a second. They adopt a new version at
// their first step that is not before `from_step`. So all ranks change at the same step if
// `from_step` is far enough ahead. A rank that reads it late changes late, and its log shows this:
// each step names the version that the rank followed.
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
// which it ends, `until_step`. From this step on, ranks return to the lasting assignment by
// themselves. JOBDIR/assignment-before.json holds the lasting assignment meanwhile.
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

namespace perseus::protocol {

// One clock for all instructions of a kind, in any order. A sweep uses it.
struct KindClock {
  int pp_rank = 0;
  int chunk = 0;  // Which of the stages of this pp_rank.
  InstructionKind kind = InstructionKind::kForward;
  int frequency_mhz = 0;  // 1 to kHighestFrequencyMhz.
  friend bool operator==(const KindClock&, const KindClock&) = default;
};

// The job and version of the server that an assignment came from. The server counts its versions
// separately, because every coordinator adds versions to the directory.
struct ServerOrigin {
  std::string job;           // The server's id of the job.
  std::int64_t version = 1;  // From 1 in each job.
  friend bool operator==(const ServerOrigin&, const ServerOrigin&) = default;
};

struct Assignment {
  std::int64_t version = 1;  // From 1. Ranks ignore a version that is not higher than theirs.
  std::int64_t from_step = 0;
  bool record = true;  // Whether steps are written to the rank's log.
  // Plan files, relative to the directory. At most one of plans, clocks and own is set. If none is
  // set, the ranks use the default clocks.
  std::string plan = {};                  // For all pipelines that `plans` does not list.
  std::map<int, std::string> plans = {};  // By dp_rank.
  std::vector<KindClock> clocks = {};
  bool own = false;  // Each rank's own plan (PERSEUS_PLAN, perseus_use_plan), if it has one.
  // A temporary assignment ends at this step. Then the lasting assignment is in force again.
  std::optional<std::int64_t> until_step = std::nullopt;  // > from_step.
  std::optional<ServerOrigin> server =
      std::nullopt;  // Empty: a coordinator in this directory wrote it.

  // The plan of a pipeline. Empty: none.
  const std::string& PlanOf(int dp_rank) const {
    const auto found = plans.find(dp_rank);
    return found == plans.end() ? plan : found->second;
  }
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

std::string FormatAssignment(const Assignment& assignment);
// Errors (kInput): "name: clocks[3].frequency_mhz is ... (remedy)".
Result<Assignment> ParseAssignment(std::string_view text, std::string_view name);

// Reads JOBDIR/assignment.json. Empty if the file does not exist yet.
Result<std::optional<Assignment>> ReadAssignment(const std::filesystem::path& job_directory);
// JOBDIR/assignment-before.json: the lasting assignment that a temporary one interrupts. The file
// exists only meanwhile.
std::filesystem::path AssignmentBeforePath(const std::filesystem::path& job_directory);
Result<std::optional<Assignment>> ReadAssignmentBefore(const std::filesystem::path& job_directory);
// Replaces the file atomically. If this fails, the previous file remains.
Result<void> WriteAssignment(const std::filesystem::path& job_directory,
                             const Assignment& assignment);

// Writes the assignments of a job: numbers them, and restores what was in force before.
//
// JOBDIR/assignment-before.json holds the lasting assignment from the first temporary one on. So if
// a coordinator is killed, the next coordinator can restore it.

// How many steps ahead `from_step` has to be, so that every rank has read the assignment by then.
// Ranks read it at intervals, and a network file system shows it late to other hosts.
inline constexpr double kAssignmentDelaySeconds = 1.0;
std::int64_t StepsAhead(double assignment_delay_s, double step_time_s);

class AssignmentWriter {
 public:
  // Takes over from the previous coordinator. Fails (kSystem) while another process is the
  // coordinator of this directory (JOBDIR/coordinator.lock).
  static Result<AssignmentWriter> Open(const std::filesystem::path& job_directory);

  // Makes the next version higher than this one. Ranks may follow versions up to it although the
  // file does not have them, because somebody deleted or replaced it.
  void CountFrom(std::int64_t version);
  // Activates the assignment from this step on. Returns the version that ranks will report.
  Result<std::int64_t> Write(Assignment assignment, std::int64_t from_step);
  // Restores the previous lasting assignment, or each rank's own plan if none existed.
  // It begins at step 0, so that it also applies to ranks that restart.
  Result<std::int64_t> Restore();
  // Whether another assignment is in force, from this writer or from one that died.
  bool HasToRestore() const { return is_kept_ || version_ != first_version_; }
  // Writes plans/NAME.json. Returns the path that an assignment names.
  Result<std::string> AddPlan(const std::string& name, const std::string& plan) const;

  // The lasting assignment, even if a temporary one hides it. `own` if none was ever written.
  const Assignment& before() const { return before_; }
  const std::filesystem::path& job_directory() const { return job_directory_; }
  // The version that was written last, here or before. 0: none.
  std::int64_t version() const { return version_; }

 private:
  explicit AssignmentWriter(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  std::filesystem::path job_directory_;
  FileDescriptor lock_;
  Assignment before_;
  bool is_kept_ = false;  // Whether before_ is in assignment-before.json.
  std::int64_t version_ = 0;
  std::int64_t first_version_ = 0;
};

}  // namespace perseus::protocol
