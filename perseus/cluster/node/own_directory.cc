#include "perseus/cluster/node/own_directory.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

// Creates the parent of all places if it does not exist. Fails as PreparePlace does.
Result<void> PrepareParent(const fs::path& parent) {
  fs::path at;
  for (const fs::path& part : parent) {
    at /= part;
    const bool is_parent = at == parent;
    if (is_parent) {
      PERSEUS_RETURN_IF_ERROR(MakeReadable(at));
    }
    struct stat its {};
    if (::lstat(at.c_str(), &its) != 0)
      return SystemFail(errno, "cannot open", InFile(at.string()));
    const bool is_shared = (its.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    // In a sticky directory such as /tmp, nobody can replace the directory of another user.
    const bool is_sticky = (its.st_mode & S_ISVTX) != 0 && !is_parent;
    const bool is_own = its.st_uid == 0 || its.st_uid == ::geteuid();
    if (S_ISDIR(its.st_mode) && is_own && (!is_shared || is_sticky)) continue;
    return FailAs(
        ErrorKind::kSystem, InFile(at.string()),
        "is a symbolic link, or another user may replace what is in it, so no assignments "
        "are written to {} (choose a directory for assignments that, like all directories "
        "above it, only root and this user may write)",
        parent.string());
  }
  return {};
}

// The contents of kIdentityFile. The path is last, because it may contain anything.
std::string IdentityText(const fs::path& job_directory, const DirectoryId& id) {
  std::error_code ignored;
  return fmt::format("device {} number {} owner {} {}\n", id.device, id.number, id.owner,
                     fs::absolute(job_directory, ignored).string());
}

// Whether the job directory with this identity still exists. True if this is unknown.
bool Exists(const std::string& identity) {
  const std::size_t begin = std::min(identity.find('/'), identity.size());
  const fs::path directory = identity.substr(begin, identity.size() - begin - 1);
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return errno != ENOENT && errno != ENOTDIR;
  return IdentityText(directory, IdentifyDirectory(directory)) == identity;
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

fs::path WithoutLinks(const fs::path& directory) {
  std::error_code error;
  const fs::path absolute = fs::absolute(directory, error).lexically_normal();
  const fs::path path = fs::weakly_canonical(absolute, error);
  const fs::path& found = error ? absolute : path;
  return found.has_filename() ? found : found.parent_path();
}

protocol::AssignmentPlaces PlacesFor(const fs::path& job_directory, const DirectoryId& id,
                                     const fs::path& parent) {
  if (id == DirectoryId() || id.owner == ::geteuid()) return {job_directory};
  return {job_directory, parent / NameOf(job_directory)};
}

Result<void> PreparePlace(const protocol::AssignmentPlaces& places, const DirectoryId& id) {
  if (places.node.empty()) return {};
  PERSEUS_RETURN_IF_ERROR(PrepareParent(places.node.parent_path()));
  const std::string identity = IdentityText(places.job, id);
  const auto known = protocol::ReadJobFile(places.node, kIdentityFile);
  if (known && *known == identity) return {};
  DeletePlace(places);
  PERSEUS_RETURN_IF_ERROR(MakeReadable(places.node));
  PERSEUS_RETURN_IF_ERROR(MakeReadable(places.node / "plans"));
  return protocol::WriteJobFile(places.node, kIdentityFile, identity);
}

void DeleteVanishedPlaces(const fs::path& parent) {
  std::error_code ignored;
  if (!fs::exists(parent, ignored) || !PrepareParent(parent)) return;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const auto identity = protocol::ReadJobFile(entry.path(), kIdentityFile);
    const bool is_place = identity && identity->starts_with("device ");
    if (is_place && !Exists(*identity)) fs::remove_all(entry.path(), ignored);
  }
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
      places.job.string(), places.node.string(), link.string());
}

}  // namespace perseus::node
