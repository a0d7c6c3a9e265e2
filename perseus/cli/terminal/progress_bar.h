// Shows the progress of a long computation, if `err` is a terminal. Shows nothing in the
// first second. A separate thread draws the bar, because a single plan may take long without a call
// of Update.
//
// Thread safety: several threads may call Begin and Update.
#pragma once

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace perseus::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::FILE* err);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() = default;  // Clears the bar.

  // Begins a part of the work, with its label. The part ends at the fraction `end` of the bar.
  void Begin(std::string label, double end);
  // The completed fraction of this part, from 0 to 1.
  void Update(double fraction);

 private:
  using Clock = std::chrono::steady_clock;

  std::string Line(Clock::duration elapsed);
  void Draw(const std::stop_token& stop);

  std::FILE* const err_;
  std::mutex mutex_;  // Guards the next four members.
  std::string label_;
  double from_ = 0;
  double to_ = 0;
  double fraction_ = 0;
  std::jthread
      drawer_;  // The last member, so that the thread ends before the others are destroyed.
};

}  // namespace perseus::cli
