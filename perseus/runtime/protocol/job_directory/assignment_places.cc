#include "perseus/runtime/protocol/job_directory/assignment_places.h"

#include <sys/stat.h>
#include <unistd.h>

namespace perseus::protocol {

AssignmentPlaces FindPlaces(const std::filesystem::path& job_directory) {
  const std::filesystem::path path = job_directory / kNodeLink;
  struct stat directory {};
  struct stat link {};
  const bool is_link = ::stat(job_directory.c_str(), &directory) == 0 &&
                       ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
  const bool is_trusted =
      link.st_uid == directory.st_uid || link.st_uid == 0 || link.st_uid == ::geteuid();
  return {job_directory, is_link && is_trusted ? path : std::filesystem::path()};
}

}  // namespace perseus::protocol
