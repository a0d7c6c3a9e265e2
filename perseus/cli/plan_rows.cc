#include "perseus/cli/plan_rows.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "perseus/cli/table.h"

namespace perseus::cli {
namespace {

constexpr std::chrono::milliseconds kRowsRedraw(100);
constexpr std::size_t kFewestRows = 3;
constexpr std::size_t kRowsOfUnknownTerminal = 24;

bool HasMovableCursor() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

// fmt::print would throw if standard error is closed or full.
void Write(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

// Moves the cursor up so many lines, and erases everything below it.
std::string EraseLines(std::size_t lines) {
  return lines == 0 ? "" : fmt::format("\r\x1b[{}A\x1b[J", lines);
}

winsize SizeOfTerminal() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  return size;
}

}  // namespace

PlanRows::PlanRows(const plan::Planner& planner, Lines lines)
    : planner_(planner),
      output_(HasMovableCursor()     ? Output::kBlock
              : lines == Lines::kYes ? Output::kLines
                                     : Output::kNothing) {}

void PlanRows::Begin(std::string activity) {
  const std::lock_guard lock(mutex_);
  activity_ = std::move(activity);
  fraction_ = 0;
  Draw();
}

void PlanRows::Update(double fraction) {
  const std::lock_guard lock(mutex_);
  fraction_ = fraction;
  if (Clock::now() - drawn_ >= kRowsRedraw) Draw();
}

void PlanRows::AnnounceLimit() {
  const std::lock_guard lock(mutex_);
  limit_follows_ = true;
}

void PlanRows::Show(const plan::Plan& plan) {
  if (output_ == Output::kNothing) return;
  const std::lock_guard lock(mutex_);
  Put(plan.target, plan.evaluation.energy_j,
      FormatRow(plan) + (limit_follows_ ? " (before clock changes are limited)" : ""));
}

void PlanRows::ShowLimited(const plan::Plan& plan, const std::string& target) {
  if (output_ == Output::kNothing) return;
  const std::lock_guard lock(mutex_);
  Put(target, plan.evaluation.energy_j, FormatRow(plan));
}

void PlanRows::Put(const std::string& target, double energy_j, std::string text) {
  auto row = std::ranges::find(rows_, target, &Row::target);
  if (row == rows_.end()) row = rows_.insert(row, {target, 0, ""});
  if (row->text == text) return;
  *row = {target, energy_j, std::move(text)};
  if (output_ == Output::kLines) {
    Write(row->text + '\n');
  }
  Draw();
}

void PlanRows::Erase() {
  const std::lock_guard lock(mutex_);
  if (output_ != Output::kBlock || lines_drawn_ == 0) return;
  Write(EraseLines(lines_drawn_));
  lines_drawn_ = 0;
}

std::string PlanRows::FormatRow(const plan::Plan& plan) const {
  const plan::Evaluation& evaluation = plan.evaluation;
  return fmt::format(
      "{}: {} s, {} J, saves {}, gap {:.3f} %", plan.target,
      FormatQuantity(ToSeconds(evaluation.time)), FormatQuantity(evaluation.energy_j),
      FormatPercent(1 - evaluation.energy_j / planner_.baseline().energy_j), plan.gap() * 100);
}

// The block is never higher or wider than the terminal, because the cursor could not return to its
// beginning.
void PlanRows::Draw() {
  if (output_ != Output::kBlock) return;
  const winsize size = SizeOfTerminal();
  const std::size_t height = size.ws_row > 0 ? size.ws_row : kRowsOfUnknownTerminal;
  const std::size_t width = size.ws_col > 1 ? size.ws_col - 1U : 79U;
  const std::size_t most = std::max(kFewestRows, height) - 2;
  std::string text = EraseLines(lines_drawn_);
  lines_drawn_ = 0;
  const auto add = [&](std::string_view line) {
    text += fmt::format("{}\n", line.substr(0, width));
    ++lines_drawn_;
  };
  for (std::size_t i = 0; i < std::min(rows_.size(), most); ++i) add(rows_[i].text);
  add(fmt::format("{} {:.0f} % (Ctrl-C: finish with these plans)", activity_, fraction_ * 100));
  Write(text);
  drawn_ = Clock::now();
}

}  // namespace perseus::cli
