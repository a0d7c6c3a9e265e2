// Writes the assignments of a job: numbers them, and restores what was in force before.
//
// JOBDIR/assignment-before.json holds the lasting assignment from the first temporary one on. So a
// coordinator that is killed leaves it to the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"

namespace perseus::protocol {

// How many steps ahead `from_step` has to be, so that every rank has read the assignment by then.
// Ranks read it at intervals, and a network file system shows it late to other hosts.
inline constexpr double kAssignmentDelaySeconds = 1.0;
std::int64_t StepsAhead(double assignment_delay_s, double step_time_s);

class AssignmentWriter {
 public:
  // Takes over from the previous coordinator. Fails (kSystem) while another process is the
  // coordinator of this directory (JOBDIR/coordinator.lock).
  static Result<AssignmentWriter> Open(const std::filesystem::path& job_directory);

  // Ranks may follow versions up to this one, which the file lacks (somebody deleted or replaced
  // it). The next version is higher.
  void CountFrom(std::int64_t version);
  // Puts the assignment into force from this step on. Returns the version that ranks will report.
  Result<std::int64_t> Write(Assignment assignment, std::int64_t from_step);
  // Puts the previous lasting assignment back into force, or each rank's own plan if none existed.
  // From step 0 on, so that it also holds for ranks that restart.
  Result<std::int64_t> Restore();
  // Whether something else is in force, from this writer or from one that died.
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
  bool is_kept_ = false;  // In assignment-before.json.
  std::int64_t version_ = 0;
  std::int64_t first_version_ = 0;
};

}  // namespace perseus::protocol
