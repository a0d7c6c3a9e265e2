// Reads the records of a CSV text one at a time, without copying the text.
//
// The format is RFC 4180: commas separate fields. A field in double quotes may contain commas, line
// ends, and doubled quotes. In addition, lines may end with LF or CRLF, and the reader skips a byte
// order mark, spaces and tabs around a field, lines without a value, and lines that begin with "#".
// If the first line has no comma, semicolons or tabs separate fields, as spreadsheets write them in
// countries where numbers have a decimal comma.
//
// Not thread safe. The text must outlive the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::profile {

class CsvReader {
 public:
  // `name` is the name of the file in messages.
  CsvReader(std::string_view text, std::string_view name);

  // Moves to the next record that has a value. Returns false at the end of the text. Fails
  // (kInput) if a quoted field has no closing quote, or if text follows the closing quote.
  Result<bool> Next();

  // The fields of the current record, trimmed. Valid until the next call of Next().
  std::span<const std::string_view> fields() const { return fields_; }
  // Parses a field that is a number. If no comma separates fields, the number may have a decimal
  // comma. Returns std::errc() if it is a number in range.
  std::errc ReadNumber(std::string_view field, double& value) const;
  // The line where the current record begins, counted from 1.
  std::int64_t line() const { return line_; }
  // The line where the current record begins.
  Place Where() const;

 private:
  bool IsSpace(char c) const;
  std::string_view Trimmed(std::string_view text) const;
  // Moves to the next record that is no comment.
  Result<bool> NextRecord();
  void SplitPlainLine(std::string_view line);
  Result<void> ReadQuotedRecord();
  Result<std::string_view> ReadQuotedField();

  std::string_view text_;
  std::string name_;
  char separator_;
  std::size_t position_ = 0;  // Where the next record begins.
  std::int64_t next_line_ = 1;
  std::int64_t line_ = 0;
  std::vector<std::string_view> fields_;
  // Fields with doubled quotes, after unescaping. `fields_` points into them, and a deque never
  // moves them.
  std::deque<std::string> unescaped_;
};

}  // namespace perseus::profile
