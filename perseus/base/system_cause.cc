#include "perseus/base/system_cause.h"

#include <fmt/core.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace perseus {
namespace {

std::string_view RemedyOf(int error) {
  switch (error) {
    case ENOENT:
      return "check the name and the directory";
    case ENOTDIR:
      return "check the path: a part of it is a file";
    case EISDIR:
      return "give the path of a file";
    case EACCES:
      return "check with ls -l who may use it and the directories above it";
    case EPERM:
      return "run this as root or as its owner";
    case EEXIST:
    case ENOTEMPTY:
      return "remove what is there, or give another name";
    case ELOOP:
      return "remove the symbolic link: it leads back to itself";
    case ENAMETOOLONG:
      return "give a shorter name: at most 255 bytes, and 4,095 with its directories";
    case EROFS:
      return "give a place on a disk that can be written";
    case ENOSPC:
      return "free space there, or give a place on another disk";
    case EDQUOT:
      return "remove files of this user, or ask for a larger quota";
    case EFBIG:
      return "raise the limit of the size of a file (ulimit -f), or write to another file system";
    case EIO:
      return "check the disk: dmesg says more";
    case ESTALE:
      return "mount the network file system again";
    case ETXTBSY:
      return "end the program that runs from this file";
    case EBUSY:
      return "end the program that uses it";
    case ENOEXEC:
      return "give a program for this machine, or a script whose first line is #!";
    case EMFILE:
      return "raise the limit of open files: ulimit -n";
    case ENFILE:
      return "raise the limit of open files of this machine: sysctl fs.file-max";
    case ENOMEM:
      return "end other programs, or raise the limit of memory";
    case EAGAIN:
      return "end other programs, or raise the limit of processes (ulimit -u), and try again";
    case ENOSYS:
    case EOPNOTSUPP:
      return "use another file system, or a newer kernel";
    case ENXIO:
    case ENODEV:
      return "give the path of a regular file";
    case EPIPE:
      return "keep the program that reads this running until the end";
    case ECONNREFUSED:
      return "start the program that listens there, or check the address";
    case ECONNRESET:
      return "check whether the program at the other end still runs, and try again";
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "check the address and the network";
    case EADDRINUSE:
      return "end the program that listens there, or give another address";
    case EADDRNOTAVAIL:
      return "give an address of this machine";
    case EBADF:
      return "leave it open";
    default:
      return "try again; if it fails again, see what dmesg says";
  }
}

}  // namespace

Error SystemError(int error, std::string_view what, Place where, ErrorKind kind) {
  return {.what = fmt::format("{}: {}", what, std::generic_category().message(error)),
          .kind = kind,
          .remedy = std::string(RemedyOf(error)),
          .where = std::move(where)};
}

}  // namespace perseus
