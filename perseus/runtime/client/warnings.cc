#include "perseus/runtime/client/warnings.h"

#include <fmt/format.h>
#include <unistd.h>

namespace perseus::client {
namespace {

constexpr std::size_t kMostUntaken = 100;

}  // namespace

void Warnings::Once(const std::string& cause, const std::string& message) {
  const MutexLock lock(mutex_);
  if (!told_.insert(cause).second) return;
  count_.fetch_add(1, std::memory_order_relaxed);
  untaken_.push_back(message);
  if (untaken_.size() > kMostUntaken) untaken_.pop_front();
  if (output_ == WarningOutput::kQuiet) return;
  const std::string line = fmt::format("{}: {}\n", who_, message);
  // In one write, so that the lines of several ranks do not mix. A closed descriptor is no matter.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string Warnings::TakeOldest() {
  const MutexLock lock(mutex_);
  if (untaken_.empty()) return {};
  std::string oldest = std::move(untaken_.front());
  untaken_.pop_front();
  return oldest;
}

}  // namespace perseus::client
