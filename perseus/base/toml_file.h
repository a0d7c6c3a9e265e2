// Reads our TOML files strictly: every error names the file and the line, and an unknown key is an
// error. Only .cc files of modules that link tomlplusplus may include this header.
#pragma once

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/result.h"
#include "perseus/base/wording.h"

namespace perseus::toml_file {

// Reads one table of the file. Each function checks the type and the range of a value. The reader
// keeps the first error. Check error() after the last read: after an error, no value is valid.
class TableReader {
 public:
  // The keys of another table of the same file.
  struct TableKeys {
    std::string_view title;
    std::span<const std::string_view> keys;
  };
  // `title` is the name of the table in messages: "[gpu]", or "the job file" for the root table.
  // If a key of the table belongs in one of the `other` tables, the error says so.
  TableReader(const toml::table& table, std::string_view file, std::string_view title,
              std::span<const std::string_view> known_keys, std::span<const TableKeys> other = {})
      : table_(table), file_(file), title_(title) {
    for (const auto& [key, value] : table) {
      const auto is_in = [name = key.str()](std::span<const std::string_view> keys) {
        return std::find(keys.begin(), keys.end(), name) != keys.end();
      };
      if (is_in(known_keys)) continue;
      const auto place = std::find_if(other.begin(), other.end(),
                                      [&](const TableKeys& one) { return is_in(one.keys); });
      if (place != other.end()) {
        FailAt(key.source(), "{} has no key {} (move it to {})", title_, Excerpt(key.str()),
               place->title);
      } else {
        FailAt(key.source(), "{} has no key {} ({})", title_, Excerpt(key.str()),
               DidYouMean(key.str(), known_keys));
      }
    }
  }

  bool Has(std::string_view key) const { return table_.contains(key); }

  std::string Text(std::string_view key) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return {};
    const toml::value<std::string>* value = node->as_string();
    if (value != nullptr && !value->get().empty()) return value->get();
    FailAt(node->source(), "{} is not a string (write {} = \"...\")", key, key);
    return {};
  }

  int Count(std::string_view key, int most, int otherwise) {
    return CountFrom(key, 1, most, otherwise);
  }

  int CountFrom(std::string_view key, int least, int most, int otherwise) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return otherwise;
    const toml::value<std::int64_t>* value = node->as_integer();
    if (value != nullptr && value->get() >= least && value->get() <= most) {
      return static_cast<int>(value->get());
    }
    // Without a useful default, any small number is a better example than the least allowed number.
    constexpr int kExample = 8;
    const int example = otherwise < least ? std::clamp(kExample, least, most) : otherwise;
    FailAt(node->source(), "{} is not a whole number from {} to {} (for example, write {} = {})",
           key, least, most, key, example);
    return otherwise;
  }

  double Number(std::string_view key, double most, double otherwise) {
    return NumberFrom(key, 0, most, otherwise);
  }

  double NumberFrom(std::string_view key, double least, double most, double otherwise) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return otherwise;
    const std::optional<double> value = node->value<double>();
    if (node->is_number() && value && *value >= least && *value <= most) return *value;
    FailAt(node->source(), "{} is not a number from {} to {} (for example, write {} = 0.1)", key,
           least, most, key);
    return otherwise;
  }

  // A number, or a list of numbers. Empty if the key is absent.
  std::vector<double> Numbers(std::string_view key, double least, double most) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return {};
    const toml::array* list = node->as_array();
    if (list == nullptr) return {NumberFrom(key, least, most, least)};
    std::vector<double> numbers;
    for (const toml::node& element : *list) {
      const std::optional<double> value = element.value<double>();
      if (element.is_number() && value && *value >= least && *value <= most) {
        numbers.push_back(*value);
        continue;
      }
      FailAt(element.source(),
             "{} has an element that is not a number from {} to {} "
             "(for example, write {} = [1, 2])",
             key, least, most, key);
    }
    if (list->empty()) FailAt(node->source(), "{} is empty (remove it)", key);
    return numbers;
  }

  // A list of strings, or one string. Empty if the key is absent.
  std::vector<std::string> Texts(std::string_view key) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return {};
    const toml::array* list = node->as_array();
    if (list == nullptr) return {Text(key)};
    std::vector<std::string> texts;
    for (const toml::node& element : *list) {
      const toml::value<std::string>* value = element.as_string();
      if (value != nullptr && !value->get().empty()) {
        texts.push_back(value->get());
        continue;
      }
      FailAt(element.source(), "{} has an element that is not a string (write {} = [\"...\"])", key,
             key);
    }
    if (list->empty()) FailAt(node->source(), "{} is empty (remove it)", key);
    return texts;
  }

  bool Flag(std::string_view key) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return false;
    const toml::value<bool>* value = node->as_boolean();
    if (value != nullptr) return value->get();
    FailAt(node->source(), "{} is not true or false (write {} = true)", key, key);
    return false;
  }

  // Fails if the key is absent. `example` is a line that has it.
  void Require(std::string_view key, std::string_view example) {
    if (!Has(key)) FailHere("{} has no {} (write {})", title_, key, example);
  }

  // Keeps the error unless an earlier one exists.
  template <typename... Args>
  void FailAt(const toml::source_region& where, MessageOf<Args...> message, Args&&... args) {
    if (error_) return;
    // A table that is absent from the file has no line.
    error_ = message(ErrorKind::kInput, std::forward<Args>(args)...);
    error_->where = InFile(file_, static_cast<int>(std::max(where.begin.line, 1U)));
  }
  template <typename... Args>
  void FailAt(std::string_view key, MessageOf<Args...> message, Args&&... args) {
    FailAt(table_.get(key)->source(), message, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void FailHere(MessageOf<Args...> message, Args&&... args) {
    FailAt(table_.source(), message, std::forward<Args>(args)...);
  }
  // As FailAt above, but with the error of the file that the value of `key` names.
  void FailAt(std::string_view key, const Error& error) {
    FailAt(key, "{} ({})", error.Cause(), error.remedy);
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  const toml::table& table_;
  std::string_view file_;
  std::string_view title_;
  std::optional<Error> error_;
};

// Reads a file of several tables. It keeps the first error of all parts. Check error() after the
// last read.
class FileReader {
 public:
  FileReader(const toml::table& root, std::string_view file) : root_(root), file_(file) {}

  // Keeps the error of the reader, if it has one. Returns whether no error has occurred so far.
  bool Keep(const TableReader& reader) {
    if (!error_) error_ = reader.error();
    return !error_;
  }
  // Keeps the error unless an earlier one exists.
  template <typename... Args>
  void FailAt(const toml::node& node, MessageOf<Args...> message, Args&&... args) {
    if (error_) return;
    error_ = message(ErrorKind::kInput, std::forward<Args>(args)...);
    error_->where = InFile(file_, static_cast<int>(node.source().begin.line));
  }

  void FailWith(const Error& error) {
    if (!error_) error_ = error;
  }

  // Calls read(table) with the table of this key, if the file has it.
  template <typename Read>
  void ReadTable(std::string_view key, Read read) {
    const toml::node* node = root_.get(key);
    if (node == nullptr || error_) return;
    if (const toml::table* table = node->as_table()) {
      read(*table);
    } else {
      FailAt(*node, "{} is not a table (write [{}] on a line of its own)", key, key);
    }
  }

  // Calls read(table) with each table of this list, up to the first error.
  template <typename Read>
  void ReadTables(std::string_view key, Read read) {
    const toml::node* node = root_.get(key);
    if (node == nullptr || error_) return;
    const toml::array* list = node->as_array();
    if (list == nullptr) {
      FailAt(*node, "{} is not a list of tables (write [[{}]] above each one)", key, key);
      return;
    }
    for (const toml::node& element : *list) {
      if (const toml::table* table = element.as_table()) {
        read(*table);
      } else {
        FailAt(element,
               "{} has an element that is not a table (write [[{}]] above "
               "each one)",
               key, key);
      }
      if (error_) return;
    }
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  const toml::table& root_;
  std::string_view file_;
  std::optional<Error> error_;
};

// Parses the text. Fails (kInput) with the file and the line if it is not TOML.
inline Result<toml::table> Parse(std::string_view text, std::string_view name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Fail(InFile(name, static_cast<int>(error.source().begin.line)),
                "not TOML: {} (see https://toml.io)", Explained(error.description()));
  }
}

}  // namespace perseus::toml_file
