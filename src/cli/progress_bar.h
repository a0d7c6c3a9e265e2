// How far a long computation is, on a terminal; nothing at all anywhere else, nor in its first
// second.
#pragma once

#include <chrono>
#include <string>

namespace perseus::cli {

class ProgressBar {
 public:
  ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();  // Wipes the bar.

  // What is being done from now on, which takes up to `end` of the whole.
  void Begin(std::string label, double end);
  // The part of that which is done.
  void Update(double fraction);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_terminal_;
  Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_;
  bool is_visible_ = false;
  std::string label_;
  double from_ = 0;
  double to_ = 0;
};

}  // namespace perseus::cli
