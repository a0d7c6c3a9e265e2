#include "perseus/runtime/protocol/job_directory/job_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "perseus/base/random_id.h"
#include "perseus/base/system_cause.h"

namespace perseus::protocol {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> CannotWrite(const fs::path& path, int error) {
  return SystemFail(error, "cannot write", InFile(path.string()));
}

bool IsLink(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(path, error));
}

tl::unexpected<Error> IsALink(ErrorKind kind, const fs::path& path, std::string_view expected) {
  return FailAs(kind, InFile(path.string()), "is a symbolic link (put a {} in its place)",
                expected);
}

tl::unexpected<Error> IsNotRegular(ErrorKind kind, const fs::path& path) {
  return FailAs(kind, InFile(path.string()), "is not a regular file (put a file in its place)");
}

Result<FileDescriptor> OpenDirectory(int parent, const std::string& name, const fs::path& path) {
  FileDescriptor opened(
      ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened) return opened;
  const int error = errno;
  if (IsLink(path)) return IsALink(ErrorKind::kSystem, path, "directory");
  return SystemFail(error, "cannot open", InFile(path.string()));
}

// Opens the job directory, which may be a link.
Result<FileDescriptor> OpenJobDirectory(const fs::path& job_directory) {
  FileDescriptor opened(::open(job_directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) return opened;
  return SystemFail(errno, "cannot open", InFile(job_directory.string()));
}

// Returns true also for a file system that cannot flush a directory (EINVAL). The file is complete
// in any case.
bool Flush(int fd) { return ::fsync(fd) == 0 || errno == EINVAL; }

// Opens or creates a regular file that has no second name. Does not change an existing file. Only
// this user may read a new file.
Result<FileDescriptor> OpenToWrite(const FileDescriptor& folder, const std::string& name,
                                   const fs::path& path) {
  // O_NONBLOCK: opening a pipe does not wait for its reader.
  FileDescriptor file(::openat(
      folder.get(), name.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600));
  const int error = errno;
  if (!file && error == ELOOP) return IsALink(ErrorKind::kSystem, path, "file");
  if (!file && error != ENXIO) return CannotWrite(path, error);  // A pipe or a socket.
  struct stat opened {};
  struct stat named {};
  if (!file || ::fstat(file.get(), &opened) != 0 || !S_ISREG(opened.st_mode)) {
    return IsNotRegular(ErrorKind::kSystem, path);
  }
  // This check uses the name. Another user may have created the file as a second name of another
  // file, and removed that name since the open.
  if (::fstatat(folder.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      named.st_dev == opened.st_dev && named.st_ino == opened.st_ino && named.st_nlink <= 1) {
    return file;
  }
  return FailAs(ErrorKind::kSystem, InFile(path.string()),
                "is a hard link of another file, or was just replaced (remove it)");
}

tl::unexpected<Error> CannotRead(const fs::path& path, int error) {
  return SystemFail(error, "cannot read", InFile(path.string()),
                    error == EACCES ? ErrorKind::kFile : ErrorKind::kSystem);
}

// Fails unless the owner of the folder may have put this file or folder there (OpenJobFile).
Result<void> CheckBelongs(const FileDescriptor& opened, const FileDescriptor& folder,
                          const fs::path& path) {
  struct stat its {};
  struct stat its_folder {};
  if (::fstat(opened.get(), &its) != 0 || ::fstat(folder.get(), &its_folder) != 0) {
    return CannotRead(path, errno);
  }
  const bool is_for_group = (its_folder.st_mode & S_IWGRP) != 0;
  const bool is_roots = its_folder.st_uid == 0 && (its_folder.st_mode & S_IWOTH) == 0;
  if (its.st_uid == its_folder.st_uid || its.st_uid == 0 || is_for_group || is_roots) return {};
  return FailAs(ErrorKind::kFile, InFile(path.string()),
                "belongs to user {}, but its directory to user {} (remove it)", its.st_uid,
                its_folder.st_uid);
}

// Opens a folder of the job directory. Returns an empty descriptor if it does not exist.
Result<FileDescriptor> OpenFolderToRead(const fs::path& job_directory, const fs::path& folder) {
  FileDescriptor opened(::open(job_directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened && errno == ENOENT) return opened;
  if (!opened) return CannotRead(job_directory, errno);
  fs::path at = job_directory;
  for (const fs::path& part : folder) {
    at /= part;
    FileDescriptor inner(
        ::openat(opened.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const int error = errno;
    if (!inner && error == ENOENT) return inner;
    if (!inner && IsLink(at)) return IsALink(ErrorKind::kFile, at, "directory");
    if (!inner) return CannotRead(at, error);
    PERSEUS_RETURN_IF_ERROR(CheckBelongs(inner, opened, at));
    opened = std::move(inner);
  }
  return opened;
}

bool WriteEverything(int fd, std::string_view contents) {
  return WriteBytes(fd, contents) == contents.size() && ::fchmod(fd, 0644) == 0 && Flush(fd);
}

}  // namespace

Result<FileDescriptor> OpenJobFile(const fs::path& job_directory, const fs::path& file) {
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor folder,
                           OpenFolderToRead(job_directory, file.parent_path()));
  if (!folder) return FileDescriptor();
  const fs::path path = job_directory / file;
  // O_NONBLOCK: opening a pipe does not wait for its writer.
  FileDescriptor opened(::openat(folder.get(), file.filename().c_str(),
                                 O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  const int error = errno;
  if (!opened && error == ENOENT) return opened;
  if (!opened && error == ELOOP) return IsALink(ErrorKind::kFile, path, "file");
  if (!opened && error != ENXIO) return CannotRead(path, error);  // A socket.
  struct stat status {};
  if (!opened || ::fstat(opened.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return IsNotRegular(ErrorKind::kFile, path);
  }
  PERSEUS_RETURN_IF_ERROR(CheckBelongs(opened, folder, path));
  if (status.st_nlink <= 1) return opened;
  return FailAs(ErrorKind::kFile, InFile(path.string()),
                "is a hard link of another file (put a copy in its place)");
}

Result<std::string> ReadJobFile(const fs::path& job_directory, const fs::path& file,
                                std::uint64_t most_bytes) {
  const fs::path path = job_directory / file;
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor opened, OpenJobFile(job_directory, file));
  if (!opened) {
    return SystemFail(ENOENT, "cannot read", InFile(path.string()), ErrorKind::kFile);
  }
  return ReadToEnd(opened, most_bytes, path);
}

Result<std::vector<std::string>> ListJobFolder(const fs::path& job_directory,
                                               const std::string& folder) {
  const auto cannot_list = [&] {
    return SystemFail(errno, "cannot list", InFile((job_directory / folder).string()));
  };
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor opened, OpenFolderToRead(job_directory, folder));
  std::vector<std::string> names;
  if (!opened) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::fdopendir(opened.get()), ::closedir);
  if (!list) return cannot_list();
  opened.Release();
  errno = 0;
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return cannot_list();
  return names;
}

Result<void> WriteJobFile(const fs::path& job_directory, const fs::path& file,
                          std::string_view contents) {
  const fs::path path = job_directory / file;
  std::error_code code;
  if (!fs::create_directories(job_directory, code) && code) return CannotWrite(path, code.value());
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor folder, OpenJobDirectory(job_directory));
  fs::path at = job_directory;
  for (const fs::path& part : file.parent_path()) {
    at /= part;
    if (::mkdirat(folder.get(), part.c_str(), 0777) == 0) {
      static_cast<void>(Flush(folder.get()));
    } else if (errno != EEXIST) {
      return CannotWrite(at, errno);
    }
    PERSEUS_ASSIGN_OR_RETURN(folder, OpenDirectory(folder.get(), part, at));
  }
  const std::string name = file.filename();
  const std::string temporary = name + "." + RandomHex(3);
  const FileDescriptor opened(::openat(folder.get(), temporary.c_str(),
                                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!opened) return CannotWrite(path, errno);
  if (!WriteEverything(opened.get(), contents) ||
      ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0) {
    const int error = errno;
    ::unlinkat(folder.get(), temporary.c_str(), 0);
    return CannotWrite(path, error);
  }
  if (!Flush(folder.get())) return CannotWrite(path, errno);
  return {};
}

Result<FileDescriptor> OpenJobFolder(const fs::path& job_directory, std::string_view folder) {
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor opened, OpenJobDirectory(job_directory));
  return OpenDirectory(opened.get(), std::string(folder), job_directory / folder);
}

// ---- Locks ----

namespace {

struct flock WholeFile(short type) {
  struct flock lock {};
  lock.l_type = type;
  return lock;
}

// An earlier version of Perseus let all users write to locks, and the umask of a user may let a
// group write to a log. Such a user may have the file open for ever.
bool MayOthersWrite(int file) {
  struct stat status {};
  return ::fstat(file, &status) != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

}  // namespace

WriteLock LockForWriting(int file) {
  if (MayOthersWrite(file)) return WriteLock::kOfAnyUser;
  while (true) {
    struct flock lock = WholeFile(F_WRLCK);
    if (::fcntl(file, F_OFD_SETLK, &lock) == 0) return WriteLock::kTaken;
    if (errno != EAGAIN && errno != EACCES) return WriteLock::kTaken;
    // If the other process has just released its lock, this process tries again.
    if (::fcntl(file, F_OFD_GETLK, &lock) != 0) return WriteLock::kOfAnother;
    if (lock.l_type == F_RDLCK) return WriteLock::kOfAnyUser;
    if (lock.l_type == F_WRLCK) return WriteLock::kOfAnother;
  }
}

std::optional<bool> IsLockedForWriting(int file) {
  struct flock lock = WholeFile(F_WRLCK);
  if (::fcntl(file, F_OFD_GETLK, &lock) != 0) return std::nullopt;
  return lock.l_type == F_WRLCK && !MayOthersWrite(file);
}

void PublishLocked(int file) {
  struct stat status {};
  if (::fstat(file, &status) == 0 && status.st_size == 0) static_cast<void>(::fchmod(file, 0644));
}

void Unlock(int file) {
  struct flock lock = WholeFile(F_UNLCK);
  ::fcntl(file, F_OFD_SETLK, &lock);
}

Result<FileDescriptor> OpenJobLock(const fs::path& job_directory, const std::string& name) {
  // The lock may be taken before the first rank creates the directory.
  std::error_code code;
  fs::create_directories(job_directory, code);
  const fs::path path = job_directory / name;
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor folder, OpenJobDirectory(job_directory));
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor file, OpenToWrite(folder, name, path));
  WriteLock lock = LockForWriting(file.get());
  if (lock == WriteLock::kOfAnyUser) {
    ::unlinkat(folder.get(), name.c_str(), 0);
    PERSEUS_ASSIGN_OR_RETURN(file, OpenToWrite(folder, name, path));
    lock = LockForWriting(file.get());
  }
  if (lock == WriteLock::kOfAnother) return FileDescriptor();
  PublishLocked(file.get());
  return file;
}

// ---- OwnFolder ----

namespace {

Result<void> CheckOwner(const struct stat& status, const fs::path& path) {
  if (status.st_uid == ::geteuid() || status.st_uid == 0) return {};
  return FailAs(ErrorKind::kSystem, InFile(path.string()),
                "belongs to user {}, but this process runs as user {} (make it as the user that "
                "trains, or give it to this user with chown)",
                status.st_uid, ::geteuid());
}

Result<void> CheckOwner(const FileDescriptor& directory, const fs::path& path) {
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) return CannotWrite(path, errno);
  return CheckOwner(status, path);
}

}  // namespace

Result<OwnFolder> OwnFolder::Open(const fs::path& job_directory, const std::string& folder) {
  std::error_code code;
  if (!fs::create_directories(job_directory, code) && code) {
    return CannotWrite(job_directory, code.value());
  }
  struct stat link {};
  if (::lstat(job_directory.c_str(), &link) != 0) return CannotWrite(job_directory, errno);
  PERSEUS_RETURN_IF_ERROR(CheckOwner(link, job_directory));
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor opened, OpenJobDirectory(job_directory));
  PERSEUS_RETURN_IF_ERROR(CheckOwner(opened, job_directory));
  if (folder.empty()) return OwnFolder(std::move(opened), job_directory);
  const fs::path path = job_directory / folder;
  if (::mkdirat(opened.get(), folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return CannotWrite(path, errno);
  }
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor inner, OpenDirectory(opened.get(), folder, path));
  PERSEUS_RETURN_IF_ERROR(CheckOwner(inner, path));
  return OwnFolder(std::move(inner), path);
}

Result<FileDescriptor> OwnFolder::OpenFile(const std::string& name) const {
  const fs::path path = path_ / name;
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor file, OpenToWrite(folder_, name, path));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return CannotWrite(path, errno);
  if (status.st_uid == ::geteuid()) return file;
  return FailAs(ErrorKind::kSystem, InFile(path.string()),
                "belongs to user {}, but this process runs as user {} (remove it)", status.st_uid,
                ::geteuid());
}

Result<FileDescriptor> OwnFolder::CreateFile(const std::string& name, mode_t mode) const {
  PERSEUS_RETURN_IF_ERROR(Remove(name));
  FileDescriptor file(::openat(folder_.get(), name.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                               mode));
  if (!file) return CannotWrite(path_ / name, errno);
  return file;
}

Result<void> OwnFolder::Rename(const std::string& from, const std::string& to) const {
  if (::renameat(folder_.get(), from.c_str(), folder_.get(), to.c_str()) == 0) return {};
  return CannotWrite(path_ / to, errno);
}

Result<void> OwnFolder::Remove(const std::string& name) const {
  if (::unlinkat(folder_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return CannotWrite(path_ / name, errno);
}

}  // namespace perseus::protocol
