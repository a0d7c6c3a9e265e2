#include "tests/fake_nvml/node_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

namespace perseus::fake_nvml {
namespace {

std::shared_ptr<Node> Map(int fd) {
  void* const memory = ::mmap(nullptr, sizeof(Node), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<Node*>(memory), [](Node* node) { ::munmap(node, sizeof(Node)); }};
}

}  // namespace

std::shared_ptr<Node> MapNode(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat status {};
  if (::fstat(fd, &status) != 0 || static_cast<std::size_t>(status.st_size) != sizeof(Node)) {
    ::close(fd);
    return nullptr;
  }
  std::shared_ptr<Node> node = Map(fd);
  return node && node->magic == kMagic ? node : nullptr;
}

std::shared_ptr<Node> CreateNode(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return nullptr;
  if (::ftruncate(fd, static_cast<off_t>(sizeof(Node))) != 0) {
    ::close(fd);
    return nullptr;
  }
  std::shared_ptr<Node> node = Map(fd);
  if (node) node->magic = kMagic;
  return node;
}

std::int64_t MonotonicNs() {
  std::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace perseus::fake_nvml
