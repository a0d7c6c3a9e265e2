// Owns a file descriptor (of a file, a socket or an eventfd) and closes it when it is destroyed.
#pragma once

#include <utility>

namespace perseus {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  // Gives up the ownership: the caller closes the descriptor.
  int Release() { return std::exchange(fd_, -1); }
  // Whether this object owns a descriptor.
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace perseus
