#include "progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace perseus::cli {
namespace {

constexpr std::chrono::milliseconds kSilence(1000);
constexpr std::chrono::milliseconds kRedraw(100);
constexpr int kWidth = 40;

}  // namespace

ProgressBar::ProgressBar() : is_terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (is_visible_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::Begin(std::string label, double end) {
  label_ = std::move(label);
  from_ = to_;
  to_ = end;
  Update(0);
}

void ProgressBar::Update(double fraction) {
  const Clock::time_point now = Clock::now();
  if (!is_terminal_ || now - started_ < kSilence || now - drawn_ < kRedraw) return;
  drawn_ = now;
  is_visible_ = true;
  const double done = std::clamp(from_ + (to_ - from_) * fraction, 0.0, 1.0);
  const int filled = static_cast<int>(done * kWidth);
  fmt::print(stderr, "\r\x1b[K[{:=<{}}{:{}}] {:3.0f} %  {}", "", filled, "", kWidth - filled,
             done * 100, label_);
  std::fflush(stderr);
}

}  // namespace perseus::cli
