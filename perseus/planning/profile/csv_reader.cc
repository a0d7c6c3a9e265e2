#include "perseus/planning/profile/csv_reader.h"

#include <algorithm>
#include <charconv>

namespace perseus::profile {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Returns the separator in the first line that has text.
char SeparatorOf(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    for (const char separator : {',', ';', '\t'}) {
      if (line.find(separator) != std::string_view::npos) return separator;
    }
    break;
  }
  return ',';
}

}  // namespace

CsvReader::CsvReader(std::string_view text, std::string_view name) : text_(text), name_(name) {
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  separator_ = SeparatorOf(text_);
}

bool CsvReader::IsSpace(char c) const {
  return (c == ' ' || c == '\t' || c == '\r') && c != separator_;
}

std::string_view CsvReader::Trimmed(std::string_view text) const {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

Place CsvReader::Where() const { return InFile(name_, static_cast<int>(line_)); }

std::errc CsvReader::ReadNumber(std::string_view field, double& value) const {
  std::string with_point;
  if (separator_ != ',' && field.find('.') == std::string_view::npos) {
    with_point = field;
    std::ranges::replace(with_point, ',', '.');
    field = with_point;
  }
  const char* const last = field.data() + field.size();
  const auto [end, error] = std::from_chars(field.data(), last, value);
  return error == std::errc() && end != last ? std::errc::invalid_argument : error;
}

Result<bool> CsvReader::Next() {
  while (true) {
    PERSEUS_ASSIGN_OR_RETURN(const bool found, NextRecord());
    const bool has_value =
        std::ranges::any_of(fields_, [](std::string_view field) { return !field.empty(); });
    if (!found || has_value) return found;
  }
}

Result<bool> CsvReader::NextRecord() {
  fields_.clear();
  unescaped_.clear();
  while (position_ < text_.size()) {
    line_ = next_line_;
    const std::size_t end = std::min(text_.find('\n', position_), text_.size());
    const std::string_view line = text_.substr(position_, end - position_);
    const bool is_comment = Trimmed(line).starts_with('#');
    if (!is_comment && line.find('"') != std::string_view::npos) {
      if (Result<void> read = ReadQuotedRecord(); !read) return Fail(read);
      return true;
    }
    position_ = std::min(end + 1, text_.size());
    ++next_line_;
    if (is_comment) continue;
    SplitPlainLine(line);
    return true;
  }
  return false;
}

void CsvReader::SplitPlainLine(std::string_view line) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != separator_) continue;
    fields_.push_back(Trimmed(line.substr(begin, i - begin)));
    begin = i + 1;
  }
  fields_.push_back(Trimmed(line.substr(begin)));
}

Result<void> CsvReader::ReadQuotedRecord() {
  while (true) {
    while (position_ < text_.size() && IsSpace(text_[position_])) ++position_;
    if (position_ < text_.size() && text_[position_] == '"') {
      PERSEUS_ASSIGN_OR_RETURN(std::string_view field, ReadQuotedField());
      fields_.push_back(Trimmed(field));
    } else {
      const char ends[] = {separator_, '\n'};
      const std::size_t end =
          std::min(text_.find_first_of({ends, sizeof ends}, position_), text_.size());
      fields_.push_back(Trimmed(text_.substr(position_, end - position_)));
      position_ = end;
    }
    if (position_ == text_.size()) return {};
    if (text_[position_++] == '\n') {
      ++next_line_;
      return {};
    }
  }
}

// Reads a quoted field, from the opening quote to the comma, line end or end of text after the
// closing quote.
Result<std::string_view> CsvReader::ReadQuotedField() {
  const std::size_t begin = position_ + 1;
  bool has_doubled_quotes = false;
  std::size_t close = text_.find('"', begin);
  while (close != std::string_view::npos && close + 1 < text_.size() && text_[close + 1] == '"') {
    has_doubled_quotes = true;
    close = text_.find('"', close + 2);
  }
  if (close == std::string_view::npos) {
    return Fail(Where(), "a quoted field has no closing quote (add it, or write \"\" for a quote)");
  }
  std::string_view field = text_.substr(begin, close - begin);
  next_line_ += std::count(field.begin(), field.end(), '\n');
  position_ = close + 1;
  while (position_ < text_.size() && IsSpace(text_[position_])) ++position_;
  if (position_ < text_.size() && text_[position_] != separator_ && text_[position_] != '\n') {
    return Fail(
        Where(),
        "text follows a closing quote (end the field at the quote, or write \"\" for a quote "
        "inside the field)");
  }
  if (!has_doubled_quotes) return field;
  std::string& unescaped = unescaped_.emplace_back();
  for (std::size_t i = 0; i < field.size(); ++i) {
    unescaped.push_back(field[i]);
    if (field[i] == '"') ++i;
  }
  return std::string_view(unescaped);
}

}  // namespace perseus::profile
