// Reads our JSON files strictly: every error names the place in the file, and an unknown key is an
// error. Each file format has a reader that uses these functions.
//
// Inside `read`, an error is thrown as an Error. Read catches the Error and adds the name of the
// file:
//
//   return json_file::Read(text, name, kMaxDepth, [](const Node& file) { return ...; });
//
// Only .cc files of modules that link nlohmann_json may include this header.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/result.h"

namespace perseus::json_file {

// JSON readers may keep numbers as doubles. Every whole number up to this one is exact as a double.
inline constexpr std::int64_t kLargestWhole = std::int64_t{1} << 53;

// Turns the path of a value in messages into a JSON pointer: "stages[2].kind" becomes
// "/stages/2/kind". Requires keys without special characters.
std::string PointerTo(std::string_view path);
// The JSON pointer to the member `key` of the object at `pointer`. The key may have any characters.
std::string PointerTo(std::string_view pointer, std::string_view key);

template <typename... Args>
[[noreturn]] void Throw(MessageOf<Args...> message, Args&&... args) {
  throw message(ErrorKind::kInput, std::forward<Args>(args)...);
}

// Throws as Throw does, with the path of the wrong value before the message. An empty path means
// the whole file.
template <typename... Args>
[[noreturn]] void ThrowAt(std::string_view path, MessageOf<Args...> message, Args&&... args) {
  Error error = message(ErrorKind::kInput, std::forward<Args>(args)...);
  if (!path.empty()) error.what = fmt::format("{} {}", path, error.what);
  error.where.pointer = PointerTo(path);
  throw error;
}

// A value of the file, and its path in messages, such as `stages[2].instructions[5]`. The member
// functions throw an Error if the value has the wrong type or is out of range.
struct Node {
  const nlohmann::json& value;
  std::string path;

  Node operator[](std::size_t index) const;
  bool Has(std::string_view key) const { return value.contains(key); }
  // If the key is absent, throws "... is missing", with the remedy.
  Node Member(std::string_view key, std::string_view remedy = "add it") const;

  void RequireObject(std::span<const std::string_view> known_keys) const;
  void RequireObject(std::initializer_list<std::string_view> known_keys) const {
    RequireObject(std::span(known_keys.begin(), known_keys.end()));
  }
  std::size_t ListSize() const;
  std::string Text() const;
  double Number(double least, double most, std::string_view unit) const;
  int Count(int least, int most, std::string_view unit) const;
  // A clock, as a whole number of MHz from 0 to kHighestFrequencyMhz. May be written as 1410.0.
  int Megahertz() const;
  // Reads a whole number that may be too large for a double, such as a number of nanoseconds.
  std::int64_t Whole(std::int64_t least, std::int64_t most, std::string_view unit) const;
  bool Flag() const;
};

// Limits for parsing. They limit the memory: a value may take only 2 bytes of the text, but takes
// about 100 bytes of memory.
struct Bounds {
  int deepest = 0;  // The most lists and objects inside one another.
  std::size_t values = std::numeric_limits<std::size_t>::max();
  std::string_view remedy = "see docs/formats.md";  // For a text that is not JSON.
};

// Throws an Error if the text is not JSON, if an object has the same key twice, or if the text
// exceeds the bounds.
nlohmann::json Parse(std::string_view text, const Bounds& bounds);

// Parses the text, calls `read` with the root, and returns the result of `read`. If an Error is
// thrown, returns this Error, with `place` as its place.
template <typename Reader>
auto Read(std::string_view text, Place place, int deepest, Reader read)
    -> Result<decltype(read(std::declval<const Node&>()))> {
  try {
    const nlohmann::json root = Parse(text, {.deepest = deepest});
    return read(Node{root, ""});
  } catch (Error& error) {
    error.where.file = std::move(place.file);
    if (place.line > 0) error.where.line = place.line;
    return tl::unexpected<Error>(std::move(error));
  }
}
template <typename Reader>
auto Read(std::string_view text, std::string_view name, int deepest, Reader read) {
  return Read(text, InFile(name), deepest, read);
}

}  // namespace perseus::json_file
