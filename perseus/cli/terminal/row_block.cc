#include "perseus/cli/terminal/row_block.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace perseus::cli {
namespace {

constexpr std::chrono::milliseconds kBlockRedraw(100);
constexpr std::size_t kFewestRows = 3;
constexpr std::size_t kRowsOfUnknownTerminal = 24;

bool HasMovableCursor(std::FILE* err) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(::fileno(err)) == 1 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

}  // namespace

RowBlock::RowBlock(std::FILE* err, std::string results, Lines lines)
    : err_(err),
      results_(std::move(results)),
      output_(HasMovableCursor(err)  ? Output::kBlock
              : lines == Lines::kYes ? Output::kLines
                                     : Output::kNothing) {}

void RowBlock::Begin(std::string activity, double fraction) {
  const MutexLock lock(mutex_);
  activity_ = std::move(activity);
  fraction_ = fraction;
  Draw();
}

void RowBlock::Update(double fraction) {
  const MutexLock lock(mutex_);
  fraction_ = fraction;
  if (Clock::now() - drawn_ >= kBlockRedraw) Draw();
}

void RowBlock::Show(const std::string& key, std::string text) {
  if (output_ == Output::kNothing) return;
  const MutexLock lock(mutex_);
  auto row = std::ranges::find(rows_, key, &Row::key);
  if (row == rows_.end()) row = rows_.insert(row, {key, ""});
  if (row->text == text) return;
  row->text = std::move(text);
  if (output_ == Output::kLines) Write(row->text + '\n');
  Draw();
}

void RowBlock::Say(std::string_view line) {
  const MutexLock lock(mutex_);
  Write(fmt::format("{}{}\n", Erased(), line));
  Draw();
}

// Returns the codes that move the cursor up to the first drawn line, and erase everything below.
std::string RowBlock::Erased() {
  const std::size_t lines = std::exchange(lines_drawn_, 0);
  return lines == 0 ? "" : fmt::format("\r\x1b[{}A\x1b[J", lines);
}

// Does not use fmt::print, which would throw if the stream is closed or full.
void RowBlock::Write(const std::string& text) const {
  std::fputs(text.c_str(), err_);
  std::fflush(err_);
}

// The block is never higher or wider than the terminal. Otherwise the cursor could not return to
// the beginning of the block.
void RowBlock::Draw() {
  if (output_ != Output::kBlock) return;
  winsize size{};
  if (::ioctl(::fileno(err_), TIOCGWINSZ, &size) != 0) size = {};
  const std::size_t height = size.ws_row > 0 ? size.ws_row : kRowsOfUnknownTerminal;
  const std::size_t width = size.ws_col > 1 ? size.ws_col - 1U : 79U;
  const std::size_t most = std::max(kFewestRows, height) - 2;
  std::string text = Erased();
  const auto add = [&](std::string_view line) PERSEUS_REQUIRES(mutex_) {
    text += fmt::format("{}\n", line.substr(0, width));
    ++lines_drawn_;
  };
  for (std::size_t i = 0; i < std::min(rows_.size(), most); ++i) add(rows_[i].text);
  add(fmt::format(
      "{} {:.0f} %{}", activity_, fraction_ * 100,
      results_.empty() ? "" : fmt::format(" (Ctrl-C: finish with these {})", results_)));
  Write(text);
  drawn_ = Clock::now();
}

}  // namespace perseus::cli
