// Receives signals for verbs that run for a long time. Such a verb has to clean up at the end, or
// can end early with a good result.
#pragma once

#include <csignal>
#include <cstdio>
#include <span>
#include <stop_token>
#include <thread>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::cli {

// Blocks the signals. Returns the descriptor from which the signals are read. Call this before
// threads start, because they inherit the signal mask.
Result<FileDescriptor> TakeSignals(std::span<const int> numbers);

// Receives SIGTERM, SIGINT and SIGHUP. From Take() on, the signals no longer end the process. The
// verb polls HaveCome().
class EndSignals {
 public:
  static Result<EndSignals> Take();
  bool HaveCome();

 private:
  FileDescriptor signals_;
  bool have_come_ = false;
};

// Handles Ctrl-C (SIGINT) for a computation that can end early with a good result. While this
// object exists, the first SIGINT requests that the computation finishes, and prints a message on
// `err`. The second SIGINT ends the process in the usual way. Create it before other threads start,
// because they inherit the signal mask.
//
// Thread safety: token() may be used by any thread.
class FinishOnInterrupt {
 public:
  explicit FinishOnInterrupt(std::FILE* err);
  FinishOnInterrupt(const FinishOnInterrupt&) = delete;
  FinishOnInterrupt& operator=(const FinishOnInterrupt&) = delete;
  ~FinishOnInterrupt();

  std::stop_token token() const { return finish_.get_token(); }

 private:
  void Wait(const std::stop_token& ends);

  std::FILE* const err_;
  std::stop_source finish_;
  sigset_t before_{};
  std::jthread waiter_;  // This is the last member, because the thread uses the other members.
};

}  // namespace perseus::cli
