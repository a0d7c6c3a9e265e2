// Records of a CSV text, one at a time, without copying it.
//
// RFC 4180: fields are separated by commas; a field in double quotes may hold commas, line ends,
// and quotes, doubled. Besides: LF or CRLF, a byte order mark, spaces and tabs around a field, and
// blank lines are all skipped.
//
// Not thread safe. The text must outlive the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::profile {

class CsvReader {
 public:
  // `name` stands for the file in messages.
  CsvReader(std::string_view text, std::string_view name);

  // Moves to the next record that is not blank; false at the end of the text. Fails if a quoted
  // field is not closed or is followed by more text.
  Result<bool> Next();

  // The fields of the current record, trimmed. Valid until the next call of Next().
  std::span<const std::string_view> fields() const { return fields_; }
  // Where the current record begins, from 1.
  std::int64_t line() const { return line_; }
  // "name:line", for messages.
  std::string Where() const;

 private:
  void SplitPlainLine(std::string_view line);
  Result<void> ReadQuotedRecord();
  Result<std::string_view> ReadQuotedField();

  std::string_view text_;
  std::string name_;
  std::size_t position_ = 0;  // Where the next record begins.
  std::int64_t next_line_ = 1;
  std::int64_t line_ = 0;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unescaped_;  // Fields with doubled quotes; a deque keeps them in place.
};

}  // namespace perseus::profile
