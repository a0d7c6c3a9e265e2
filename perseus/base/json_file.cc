#include "perseus/base/json_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/wording.h"

namespace perseus::json_file {

using nlohmann::json;

namespace {

// The library's message without its prefix: "[json.exception...] parse error at line 1, ...: ".
std::string_view Explanation(std::string_view what) {
  const std::size_t column = what.find("column");
  const std::size_t end =
      column == std::string_view::npos ? what.find("] ") : what.find(": ", column);
  return end == std::string_view::npos ? what : what.substr(end + 2);
}

// Returns the library's explanation. For text that is not UTF-8, returns a short explanation of our
// own, because the library would quote everything before the wrong byte, at any length.
std::string WhatIsWrong(std::string_view what) {
  if (what.find("ill-formed UTF-8") != std::string_view::npos) return "a text is not UTF-8";
  return Explained(Explanation(what));
}

// Checks the text without storing its values. Rejects three things that the library accepts: an
// object with the same key twice, too deep nesting, and too many values. (The library's parser with
// a callback could do this too, but it scans a list again for each object in the list.)
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(const Bounds& bounds) : bounds_(bounds) {}

  bool null() override { return Scalar(); }
  bool boolean(bool) override { return Scalar(); }
  bool number_integer(number_integer_t) override { return Scalar(); }
  bool number_unsigned(number_unsigned_t) override { return Scalar(); }
  bool number_float(number_float_t, const string_t&) override { return Scalar(); }
  bool string(string_t&) override { return Scalar(); }
  bool binary(binary_t&) override { return Scalar(); }
  bool start_object(std::size_t) override { return Begin({.is_object = true}); }
  bool start_array(std::size_t) override { return Begin({}); }
  bool end_object() override { return End(); }
  bool end_array() override { return End(); }

  bool key(string_t& key) override {
    CheckDepth();
    Open& object = open_.back();
    object.key = key;
    if (object.keys.insert(key).second) return true;
    throw Error{.what = fmt::format("key {} appears twice in one object", Excerpt(key)),
                .remedy = "remove one",
                .where = {.pointer = Pointer()}};
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;  // The library's number of this error.
    const bool is_overflow = error.id == kNumberOverflow;
    throw NotJson{position, WhatIsWrong(error.what()), is_overflow ? Pointer() : "", is_overflow};
  }

  struct NotJson {
    std::size_t position;
    std::string why;
    std::string pointer;
    bool is_overflow;
  };

 private:
  struct Open {
    bool is_object = false;
    std::size_t elements = 0;
    std::string key = {};  // The last key that was read.
    std::set<std::string> keys = {};
  };

  bool Scalar() {
    Count();
    Advance();
    return true;
  }
  bool Begin(Open open) {
    Count();
    open_.push_back(std::move(open));
    return true;
  }
  bool End() {
    open_.pop_back();
    Advance();
    return true;
  }
  void CheckDepth() const {
    if (open_.size() <= static_cast<std::size_t>(bounds_.deepest)) return;
    throw Error{.what = "nested too deeply", .remedy = std::string(bounds_.remedy)};
  }
  void Count() {
    CheckDepth();
    if (++values_ > bounds_.values) Throw("more than {} values (send less)", bounds_.values);
  }
  void Advance() {
    if (!open_.empty()) ++open_.back().elements;
  }
  // The JSON pointer to the next value.
  std::string Pointer() const {
    std::string pointer;
    for (const Open& open : open_) {
      pointer = PointerTo(pointer, open.is_object ? open.key : std::to_string(open.elements));
    }
    return pointer;
  }

  Bounds bounds_;
  std::size_t values_ = 0;
  std::vector<Open> open_;
};

}  // namespace

std::string PointerTo(std::string_view path) {
  std::string pointer;
  if (!path.empty()) pointer += '/';
  for (const char c : path) {
    if (c == ']') continue;
    if (c == '.' || c == '[') {
      pointer += '/';
    } else {
      pointer += c;
    }
  }
  return pointer;
}

std::string PointerTo(std::string_view pointer, std::string_view key) {
  std::string further(pointer);
  further += '/';
  for (const char c : key) {
    if (c == '~') {
      further += "~0";
    } else if (c == '/') {
      further += "~1";
    } else {
      further += c;
    }
  }
  return further;
}

json Parse(std::string_view text, const Bounds& bounds) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw Error{.what = "not JSON: it is empty",
                .remedy = std::string(bounds.remedy),
                .where = {.line = 1}};
  }
  Checker checker(bounds);
  try {
    json::sax_parse(text, &checker);
  } catch (const Checker::NotJson& error) {
    const auto upto = text.substr(0, std::min(error.position, text.size()));
    const int line =
        error.is_overflow ? 0 : static_cast<int>(1 + std::count(upto.begin(), upto.end(), '\n'));
    throw Error{.what = "not JSON: " + error.why,
                .remedy = std::string(bounds.remedy),
                .where = {.line = line, .pointer = error.pointer}};
  }
  return json::parse(text);
}

Node Node::operator[](std::size_t index) const {
  return {value[index], fmt::format("{}[{}]", path, index)};
}

Node Node::Member(std::string_view key, std::string_view remedy) const {
  std::string member = path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  const auto found = value.find(key);
  if (found == value.end()) ThrowAt(member, "is missing ({})", remedy);
  return {*found, std::move(member)};
}

void Node::RequireObject(std::span<const std::string_view> known_keys) const {
  if (!value.is_object()) ThrowAt(path, "is not an object (write {{...}})");
  for (const auto& [key, ignored] : value.items()) {
    if (std::find(known_keys.begin(), known_keys.end(), key) == known_keys.end()) {
      throw Error{
          .what = fmt::format("{}has no key {}", path.empty() ? "" : path + " ", Excerpt(key)),
          .remedy = DidYouMean(key, known_keys),
          .where = {.pointer = PointerTo(PointerTo(path), key)}};
    }
  }
}

std::size_t Node::ListSize() const {
  if (!value.is_array()) ThrowAt(path, "is not a list (write [...])");
  return value.size();
}

std::string Node::Text() const {
  if (!value.is_string()) ThrowAt(path, "is not a string (write it in quotes)");
  return value.get<std::string>();
}

// A value that is not a number becomes NaN, which fails every comparison.
double Node::Number(double least, double most, std::string_view unit) const {
  const double number =
      value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(number >= least && number <= most)) {
    ThrowAt(path, "is not a number from {} to {} (expected {})", least, most, unit);
  }
  return number;
}

int Node::Count(int least, int most, std::string_view unit) const {
  const double number = Number(least, most, unit);
  if (!value.is_number_integer()) ThrowAt(path, "is not a whole number (expected {})", unit);
  return static_cast<int>(number);
}

int Node::Megahertz() const {
  constexpr std::string_view kUnit = "MHz, such as 1410";
  const double number = Number(0, kHighestFrequencyMhz, kUnit);
  if (number != std::floor(number)) {
    ThrowAt(path, "is not a whole number (expected {})", kUnit);
  }
  return static_cast<int>(number);
}

std::int64_t Node::Whole(std::int64_t least, std::int64_t most, std::string_view unit) const {
  // The library stores numbers above the signed range as unsigned.
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max());
  const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
  if (!fits || number < least || number > most) {
    ThrowAt(path, "is not a whole number from {} to {} (expected {})", least, most, unit);
  }
  return number;
}

bool Node::Flag() const {
  if (!value.is_boolean()) ThrowAt(path, "is neither true nor false (write one of them)");
  return value.get<bool>();
}

}  // namespace perseus::json_file
