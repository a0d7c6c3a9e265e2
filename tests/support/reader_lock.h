// For tests: another user who may read a file takes all locks that a reader can take.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <stdexcept>

#include "perseus/base/file_descriptor.h"

namespace perseus {

// The locks end when the descriptor is closed.
inline FileDescriptor LockAsReader(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || ::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    throw std::runtime_error("a reader cannot lock the file");
  }
  return file;
}

}  // namespace perseus
