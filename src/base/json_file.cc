#include "perseus/base/json_file.h"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/wording.h"

namespace perseus::json_file {

using nlohmann::json;

namespace {

// The library alone keeps the last of two equal keys and follows nesting to any depth.
json ParseStrictly(std::string_view text, int deepest) {
  std::vector<std::set<std::string>> keys;  // Of every object that is open.
  auto check = [&](int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (depth > deepest) Throw("nested too deeply (see docs/formats.md for what goes where)");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      Throw("key {} stands twice in one object (remove one)", Excerpt(parsed.get<std::string>()));
    }
    return true;
  };
  return json::parse(text, check);
}

// What the library says after its own preamble: "[json.exception...] parse error at line 1, ...: ".
std::string_view Explanation(std::string_view what) {
  const std::size_t column = what.find("column");
  const std::size_t end =
      column == std::string_view::npos ? what.find("] ") : what.find(": ", column);
  return end == std::string_view::npos ? what : what.substr(end + 2);
}

}  // namespace

json Parse(std::string_view text, int deepest) {
  try {
    return ParseStrictly(text, deepest);
  } catch (const json::parse_error& error) {
    const auto upto = text.substr(0, std::min(error.byte, text.size()));
    throw Failure{fmt::format(":{}: not JSON: {} (see docs/formats.md)",
                              1 + std::count(upto.begin(), upto.end(), '\n'),
                              Explained(Explanation(error.what())))};
  } catch (const json::exception& error) {
    throw Failure{
        fmt::format(": not JSON: {} (see docs/formats.md)", Explained(Explanation(error.what())))};
  }
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
      ThrowAt(path, "has no key {}{}", Excerpt(key), DidYouMean(key, known_keys));
    }
  }
}

std::size_t Node::ListSize() const {
  if (!value.is_array()) ThrowAt(path, "is not a list (write [...])");
  return value.size();
}

std::string Node::Text() const {
  if (!value.is_string()) ThrowAt(path, "is not a text (write it in quotes)");
  return value.get<std::string>();
}

// JSON has no NaN or infinity, but 1e999 overflows to one.
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

std::int64_t Node::Whole(std::int64_t least, std::int64_t most, std::string_view unit) const {
  // What is above the signed ones is kept as unsigned.
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
