#include "perseus/cluster/node/own_directory.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "perseus/base/system_cause.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::node {
namespace {

namespace fs = std::filesystem;

// In places.node: the identity of the job directory.
constexpr const char* kIdentityFile = "directory";

// The last part of the path: never empty, "." or "..".
fs::path NameOf(const fs::path& directory) {
  std::error_code ignored;
  const fs::path path = fs::absolute(directory, ignored).lexically_normal();
  const fs::path name = (path.has_filename() ? path : path.parent_path()).filename();
  return name.empty() ? fs::path("root") : name;
}

// Creates a directory that ranks of other users can read, whatever the umask is.
Result<void> MakeReadable(const fs::path& directory) {
  if (::mkdir(directory.c_str(), 0755) != 0) {
    if (errno == EEXIST) return {};
    return SystemFail(errno, "cannot create", InFile(directory.string()));
  }
  if (::chmod(directory.c_str(), 0755) == 0) return {};
  return SystemFail(errno, "cannot change", InFile(directory.string()));
}

}  // namespace

DirectoryId IdentifyDirectory(const fs::path& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_uid};
}

std::vector<std::string> NamesOfUser(uid_t user) {
  std::vector<std::string> names;
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16'384> texts;
  if (::getpwuid_r(user, &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr) {
    names.emplace_back(found->pw_name);
  }
  names.push_back(fmt::to_string(user));
  return names;
}

protocol::AssignmentPlaces PlacesFor(const fs::path& job_directory, const DirectoryId& id,
                                     const fs::path& parent) {
  if (id == DirectoryId() || id.owner == ::geteuid()) return {job_directory};
  return {job_directory, parent / NameOf(job_directory)};
}

Result<void> PreparePlace(const protocol::AssignmentPlaces& places, const DirectoryId& id) {
  if (places.node.empty()) return {};
  const std::string identity =
      fmt::format("device {} number {} owner {}\n", id.device, id.number, id.owner);
  const auto known = protocol::ReadJobFile(places.node, kIdentityFile);
  if (known && *known == identity) return {};
  DeletePlace(places);
  PERSEUS_RETURN_IF_ERROR(MakeReadable(places.node.parent_path()));
  PERSEUS_RETURN_IF_ERROR(MakeReadable(places.node));
  PERSEUS_RETURN_IF_ERROR(MakeReadable(places.node / "plans"));
  return protocol::WriteJobFile(places.node, kIdentityFile, identity);
}

void DeletePlace(const protocol::AssignmentPlaces& places) {
  std::error_code ignored;
  if (!places.node.empty()) fs::remove_all(places.node, ignored);
}

std::string WhyNotFound(const protocol::AssignmentPlaces& places) {
  std::error_code ignored;
  const fs::path link = places.job / protocol::kNodeLink;
  if (places.node.empty() || fs::is_symlink(fs::symlink_status(link, ignored))) return "";
  return fmt::format(
      "{} belongs to another user than this process, and has no link to the assignments, so its "
      "ranks follow no plan of the server (ln -sT {} {})",
      places.job.string(), fs::absolute(places.node, ignored).string(), link.string());
}

}  // namespace perseus::node
