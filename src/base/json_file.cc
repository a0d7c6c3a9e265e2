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

// What the library alone would let pass: two equal keys, nesting to any depth, any number of
// values.
class Progress {
 public:
  explicit Progress(const Bounds& bounds) : bounds_(bounds) {}

  void Note(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (depth > bounds_.deepest) {
      Throw("nested too deeply (see docs/formats.md for what goes where)");
    }
    switch (event) {
      case Event::key:
        NoteKey(parsed.get_ref<const std::string&>());
        break;
      case Event::object_start:
      case Event::array_start:
        Count();
        open_.push_back({.is_object = event == Event::object_start});
        break;
      case Event::object_end:
      case Event::array_end:
        open_.pop_back();
        Advance();
        break;
      case Event::value:
        Count();
        Advance();
        break;
    }
  }

  // Of the value that comes next.
  std::string Pointer() const {
    std::string pointer;
    for (const Open& open : open_) {
      pointer = PointerTo(pointer, open.is_object ? open.key : std::to_string(open.elements));
    }
    return pointer;
  }

 private:
  struct Open {
    bool is_object = false;
    std::size_t elements = 0;
    std::string key = {};  // The newest.
    std::set<std::string> keys = {};
  };

  void NoteKey(const std::string& key) {
    Open& object = open_.back();
    object.key = key;
    if (object.keys.insert(key).second) return;
    throw Failure{fmt::format(": key {} stands twice in one object (remove one)", Excerpt(key)),
                  Pointer()};
  }
  void Count() {
    if (++values_ > bounds_.values) Throw("more than {} values (send less)", bounds_.values);
  }
  void Advance() {
    if (!open_.empty()) ++open_.back().elements;
  }

  Bounds bounds_;
  std::size_t values_ = 0;
  std::vector<Open> open_;
};

json ParseStrictly(std::string_view text, Progress& progress) {
  return json::parse(text, [&progress](int depth, json::parse_event_t event, const json& parsed) {
    progress.Note(depth, event, parsed);
    return true;
  });
}

// What the library says after its own preamble: "[json.exception...] parse error at line 1, ...: ".
std::string_view Explanation(std::string_view what) {
  const std::size_t column = what.find("column");
  const std::size_t end =
      column == std::string_view::npos ? what.find("] ") : what.find(": ", column);
  return end == std::string_view::npos ? what : what.substr(end + 2);
}

// The library quotes what it read up to the byte that is none of UTF-8, at any length.
std::string WhatIsWrong(std::string_view what) {
  if (what.find("ill-formed UTF-8") != std::string_view::npos) return "a text is not UTF-8";
  return Explained(Explanation(what));
}

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
  Progress progress(bounds);
  try {
    return ParseStrictly(text, progress);
  } catch (const json::parse_error& error) {
    const auto upto = text.substr(0, std::min(error.byte, text.size()));
    throw Failure{fmt::format(":{}: not JSON: {} (see docs/formats.md)",
                              1 + std::count(upto.begin(), upto.end(), '\n'),
                              WhatIsWrong(error.what()))};
  } catch (const json::exception& error) {
    throw Failure{fmt::format(": not JSON: {} (see docs/formats.md)", WhatIsWrong(error.what())),
                  progress.Pointer()};
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
      throw Failure{fmt::format(": {} has no key {}{}", path.empty() ? "the file" : path,
                                Excerpt(key), DidYouMean(key, known_keys)),
                    PointerTo(PointerTo(path), key)};
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
