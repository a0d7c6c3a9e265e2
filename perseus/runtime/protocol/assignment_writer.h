// Who gives a job its assignment: numbers them, and puts back what was in force before.
//
// What was in force before is kept in JOBDIR/assignment-before.json from the first temporary
// assignment until lasting ones: a coordinator that is killed leaves it to the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "perseus/base/result.h"
#include "perseus/runtime/protocol/assignment.h"

namespace perseus::protocol {

// How many steps ahead assignment have to be given so that every rank has read them by then, though
// ranks look at most this often, and the file system tells other hosts late.
inline constexpr double kAssignmentDelaySeconds = 1.0;
std::int64_t StepsAhead(double assignment_delay_s, double step_time_s);

class AssignmentWriter {
 public:
  // Takes over from whoever gave assignment last. Fails (kSystem) while another process has a
  // writer of that directory (JOBDIR/coordinator.lock).
  static Result<AssignmentWriter> Open(const std::filesystem::path& job_directory);

  // In force from that step on (temporary ones: until theirs); the version that ranks will report.
  Result<std::int64_t> Write(Assignment assignment, std::int64_t from_step);
  // What was in force before, each rank's own plan if nothing was. At once, and for ranks that will
  // start anew, too: they begin at step 0.
  Result<std::int64_t> Restore();
  // Whether anything else is in force, of this writer or of one that died.
  bool HasToRestore() const { return is_kept_ || version_ != first_version_; }
  // Writes plans/NAME.json; what an order says of it.
  Result<std::string> AddPlan(const std::string& name, const std::string& plan) const;

  // The lasting assignment: those that temporary ones hide, too. `own` if nothing was ever ordered.
  const Assignment& before() const { return before_; }
  const std::filesystem::path& job_directory() const { return job_directory_; }
  // Of the assignment given last, here or before; 0: none.
  std::int64_t version() const { return version_; }

 private:
  explicit AssignmentWriter(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  std::filesystem::path job_directory_;
  std::shared_ptr<const int> lock_;  // A file descriptor.
  Assignment before_;
  bool is_kept_ = false;  // In assignment-before.json.
  std::int64_t version_ = 0;
  std::int64_t first_version_ = 0;
};

}  // namespace perseus::protocol
