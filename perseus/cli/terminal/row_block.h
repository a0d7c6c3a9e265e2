// Shows the progress of a long computation on `err`, and its best results so far if it has any. The
// final results are printed separately, and do not depend on this display.
//
// On a terminal, the rows are a block. The block is drawn again in the same place whenever a row
// changes, and is erased at the end. The line below the rows says what the verb does now. Without a
// terminal, nothing is shown, except if lines are requested. Then each new text of a row is printed
// as a line.
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
  // `results` names the things that the rows show, in the plural: "plans". `lines` has an effect
  // only without a terminal.
  RowBlock(std::FILE* err, std::string results, Lines lines);
  // Has no rows. On a terminal, shows only what the verb does.
  explicit RowBlock(std::FILE* err) : RowBlock(err, "", Lines::kNo) {}
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;
  ~RowBlock() { Write(Erased()); }

  // Shows what the verb does now, and the completed fraction.
  void Begin(std::string activity, double fraction = 0);
  void Update(double fraction);

  // Replaces the row with this key. If no row has the key, adds a row at the end.
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
