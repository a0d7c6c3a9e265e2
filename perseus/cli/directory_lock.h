// The lock of a directory of results: one run at a time writes into it.
#pragma once

#include <filesystem>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::cli {

// Locks DIR/.perseus-lock (flock) until it is destroyed, and removes the file then. The kernel
// releases the lock of a killed run, and the next run takes over the file that it left. A file
// system without locks gives no protection, and the run goes on.
class DirectoryLock {
 public:
  // Creates the directory. Fails (kSystem) if another run has the lock, or if the directory cannot
  // be written.
  static Result<DirectoryLock> Take(const std::filesystem::path& directory);
  DirectoryLock(DirectoryLock&&) = default;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

  // Whether Take() created the directory.
  bool is_new() const { return is_new_; }

 private:
  DirectoryLock(std::filesystem::path path, FileDescriptor file, bool is_new)
      : path_(std::move(path)), file_(std::move(file)), is_new_(is_new) {}

  std::filesystem::path path_;
  FileDescriptor file_;
  bool is_new_ = false;
};

}  // namespace perseus::cli
