#include "perseus/runtime/client/warnings.h"

#include <fmt/core.h>
#include <unistd.h>

#include "perseus/base/excerpt.h"

namespace perseus::client {
namespace {

constexpr std::size_t kMostUntaken = 100;
// A long warning is cut in the middle. The end stays, because it says what the user loses, and what
// to do.
constexpr std::size_t kShownBegin = 500;
constexpr std::size_t kShownEnd = 500;

std::string Shortened(const std::string& message) {
  if (message.size() <= kShownBegin + kShownEnd) return message;
  return message.substr(0, kShownBegin) + " ... " + message.substr(message.size() - kShownEnd);
}

}  // namespace

void Warnings::Once(const std::string& cause, const std::string& message) {
  const MutexLock lock(mutex_);
  if (!told_.insert(cause).second) return;
  count_.fetch_add(1, std::memory_order_relaxed);
  const std::string text = OneLine(Shortened(message));
  untaken_.push_back(text);
  if (untaken_.size() > kMostUntaken) untaken_.pop_front();
  if (output_ == WarningOutput::kQuiet) return;
  const std::string line = fmt::format("{}: {}\n", who_, text);
  // One write, so that the lines of several ranks do not mix. If the descriptor is closed, no line
  // is written.
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
