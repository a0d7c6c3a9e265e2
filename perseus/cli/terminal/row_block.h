// Shows the progress of a long computation on `err`, and its best results so far if it has any. The
// final results are printed separately, and do not depend on this display.
//
// On a terminal, the rows are a block that is drawn again in place whenever a row changes, and
// erased at the end. The line below them says what the verb does now. Without a terminal, nothing
// is shown, unless lines are requested: then each new text of a row is a line.
//
// Thread safety: several threads may call all methods.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/mutex.h"

namespace perseus::cli {

class RowBlock {
 public:
  enum class Lines { kNo, kYes };
  // `results` is what the rows show, in the plural: "plans". `lines` applies without a terminal.
  RowBlock(std::FILE* err, std::string results, Lines lines);
  // Has no rows: shows only what the verb does, on a terminal.
  explicit RowBlock(std::FILE* err) : RowBlock(err, "", Lines::kNo) {}
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;
  ~RowBlock() { Write(Erased()); }

  // Shows what the verb does now, and the completed fraction.
  void Begin(std::string activity, double fraction = 0);
  void Update(double fraction);

  // Replaces the row of this key, or adds one at the end.
  void Show(const std::string& key, std::string text);

  // Prints a line that stays, above the block.
  void Say(std::string_view line);

 private:
  enum class Output { kNothing, kLines, kBlock };
  using Clock = std::chrono::steady_clock;

  struct Row {
    std::string key;
    std::string text;
  };
  // Returns the escape codes that erase the block.
  std::string Erased() PERSEUS_REQUIRES(mutex_);
  void Draw() PERSEUS_REQUIRES(mutex_);
  void Write(const std::string& text) const;

  std::FILE* const err_;
  const std::string results_;
  const Output output_;
  Mutex mutex_;
  std::vector<Row> rows_ PERSEUS_GUARDED_BY(mutex_);
  std::string activity_ PERSEUS_GUARDED_BY(mutex_);
  double fraction_ PERSEUS_GUARDED_BY(mutex_) = 0;
  std::size_t lines_drawn_ PERSEUS_GUARDED_BY(mutex_) = 0;
  Clock::time_point drawn_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::cli
