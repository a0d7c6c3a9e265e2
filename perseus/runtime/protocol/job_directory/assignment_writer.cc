#include "perseus/runtime/protocol/job_directory/assignment_writer.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::protocol {

std::int64_t StepsAhead(double assignment_delay_s, double step_time_s) {
  // The current step has not ended.
  return 2 + static_cast<std::int64_t>(std::ceil(assignment_delay_s / step_time_s));
}

namespace {

constexpr const char* kLock = "coordinator.lock";

// The open lock file. Some network file systems have no locks. Then nothing is locked.
Result<FileDescriptor> Lock(const std::filesystem::path& job_directory) {
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor lock, OpenJobLock(job_directory, kLock));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return lock;
  return FailAs(
      ErrorKind::kSystem,
      "{}: another perseus gives this job its assignment (wait for its tune or verify, or end "
      "it: it gives back what was in force before)",
      (job_directory / kLock).string());
}

}  // namespace

Result<AssignmentWriter> AssignmentWriter::Open(const std::filesystem::path& job_directory) {
  PERSEUS_ASSIGN_OR_RETURN(auto lock, Lock(job_directory));
  PERSEUS_ASSIGN_OR_RETURN(const auto now, ReadAssignment(job_directory));
  PERSEUS_ASSIGN_OR_RETURN(const auto kept, ReadAssignmentBefore(job_directory));
  AssignmentWriter writer(job_directory);
  writer.lock_ = std::move(lock);
  writer.before_.own = true;
  writer.is_kept_ = kept.has_value();
  if (kept) {
    writer.before_ = *kept;
  } else if (now && !now->until_step) {
    writer.before_ = *now;
  }
  if (now) writer.version_ = now->version;
  writer.first_version_ = writer.version_;
  return writer;
}

void AssignmentWriter::CountFrom(std::int64_t version) {
  if (version > version_) version_ = first_version_ = version;
}

Result<std::int64_t> AssignmentWriter::Write(Assignment assignment, std::int64_t from_step) {
  assignment.version = version_ + 1;
  assignment.from_step = from_step;
  if (assignment.until_step && !is_kept_) {
    PERSEUS_RETURN_IF_ERROR(
        WriteJobFile(job_directory_, AssignmentBeforePath({}), FormatAssignment(before_)));
    is_kept_ = true;
  }
  PERSEUS_RETURN_IF_ERROR(WriteAssignment(job_directory_, assignment));
  ++version_;
  if (!assignment.until_step && is_kept_) {
    std::error_code error;
    std::filesystem::remove(AssignmentBeforePath(job_directory_), error);
    is_kept_ = static_cast<bool>(error);
  }
  return version_;
}

Result<std::int64_t> AssignmentWriter::Restore() { return Write(before_, 0); }

Result<std::string> AssignmentWriter::AddPlan(const std::string& name,
                                              const std::string& plan) const {
  const std::string path = fmt::format("plans/{}.json", name);
  if (auto written = WriteJobFile(job_directory_, path, plan); !written) {
    return Fail(written);
  }
  return path;
}

}  // namespace perseus::protocol
