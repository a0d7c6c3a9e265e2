#include "perseus/cli/terminal/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <utility>

namespace perseus::cli {
namespace {

constexpr std::chrono::milliseconds kSilence(1000);
constexpr std::chrono::milliseconds kRedraw(100);
constexpr int kWidth = 40;

}  // namespace

ProgressBar::ProgressBar(std::FILE* err) : err_(err) {
  if (::isatty(::fileno(err)) != 1) return;
  drawer_ = std::jthread([this](const std::stop_token& stop) { Draw(stop); });
}

void ProgressBar::Begin(std::string label, double end) {
  const std::lock_guard lock(mutex_);
  label_ = std::move(label);
  from_ = to_;
  to_ = end;
  fraction_ = 0;
}

void ProgressBar::Update(double fraction) {
  const std::lock_guard lock(mutex_);
  fraction_ = fraction;
}

std::string ProgressBar::Line(Clock::duration elapsed) {
  const std::lock_guard lock(mutex_);
  const double done = std::clamp(from_ + (to_ - from_) * fraction_, 0.0, 1.0);
  const int filled = static_cast<int>(done * kWidth);
  return fmt::format("\r\x1b[K[{:=<{}}{:{}}] {:3.0f} %  {} s  {}", "", filled, "", kWidth - filled,
                     done * 100, std::chrono::floor<std::chrono::seconds>(elapsed).count(), label_);
}

void ProgressBar::Draw(const std::stop_token& stop) {
  const Clock::time_point started = Clock::now();
  std::mutex alone;  // wait_for needs a mutex. Only the stop request ends a wait early.
  std::condition_variable_any stopped;
  std::unique_lock lock(alone);
  auto wait = [&](Clock::duration duration) {
    stopped.wait_for(lock, stop, duration, [] { return false; });
    return !stop.stop_requested();
  };
  if (!wait(kSilence)) return;
  do {
    std::fputs(Line(Clock::now() - started).c_str(), err_);
    std::fflush(err_);
  } while (wait(kRedraw));
  std::fputs("\r\x1b[K", err_);
  std::fflush(err_);
}

}  // namespace perseus::cli
