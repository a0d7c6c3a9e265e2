// The lock of a directory of results: one run at a time writes into it.
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

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

  // The directories that Take() created, the deepest one first: empty, or the directory itself and
  // those above it that did not exist.
  const std::vector<std::filesystem::path>& created() const { return created_; }

 private:
  DirectoryLock(std::filesystem::path path, FileDescriptor file,
                std::vector<std::filesystem::path> created)
      : path_(std::move(path)), file_(std::move(file)), created_(std::move(created)) {}

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<std::filesystem::path> created_;
};

// Removes them in this order, until one is not empty or cannot be removed.
void RemoveIfEmpty(const std::vector<std::filesystem::path>& directories);

}  // namespace perseus::cli
