// How far a long computation is, on a terminal; nothing at all anywhere else, nor in its first
// second. A thread of its own draws it, since a single plan may take long and tells nothing
// meanwhile.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <thread>

namespace perseus::cli {

class ProgressBar {
 public:
  ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() = default;  // Wipes the bar.

  // What is being done from now on, which takes up to `end` of the whole.
  void Begin(std::string label, double end);
  // The part of that which is done.
  void Update(double fraction);

 private:
  using Clock = std::chrono::steady_clock;

  std::string Line(Clock::duration elapsed);
  void Draw(const std::stop_token& stop);

  std::mutex mutex_;  // Guards all of these:
  std::string label_;
  double from_ = 0;
  double to_ = 0;
  double fraction_ = 0;
  std::jthread drawer_;  // Last, so that it ends first.
};

}  // namespace perseus::cli
