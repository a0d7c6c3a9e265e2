// Strict reading of our JSON files, for the readers that know their formats: every value knows its
// place, every failure names it, and nothing that the format lacks is passed over.
//
// Failures are thrown inside, and Read turns them into an Error:
//
//   return json_file::Read(text, name, kDeepest, [](const Node& file) { return ...; });
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/result.h"

namespace perseus::json_file {

// The largest whole number up to which every one is exact in JSON, whose numbers are doubles.
inline constexpr std::int64_t kLargestWhole = std::int64_t{1} << 53;

struct Failure {
  std::string message;       // Follows the file's name.
  std::string pointer = {};  // To the value that is wrong, if one is (RFC 6901).
};

// Of how messages call a value, by keys without special characters: "stages[2].kind" is
// "/stages/2/kind".
std::string PointerTo(std::string_view path);
// One step further, to whatever key.
std::string PointerTo(std::string_view pointer, std::string_view key);

template <typename... Args>
[[noreturn]] void Throw(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{": " + fmt::format(format, std::forward<Args>(args)...)};
}

// As Throw, of the value at that path.
template <typename... Args>
[[noreturn]] void ThrowAt(std::string_view path, fmt::format_string<Args...> format,
                          Args&&... args) {
  throw Failure{fmt::format(": {} {}", path.empty() ? "the file" : path,
                            fmt::format(format, std::forward<Args>(args)...)),
                PointerTo(path)};
}

// A value of the file and how messages call it: `stages[2].instructions[5]`.
struct Node {
  const nlohmann::json& value;
  std::string path;

  Node operator[](std::size_t index) const;
  bool Has(std::string_view key) const { return value.contains(key); }
  // Throws "... is missing (`remedy`)".
  Node Member(std::string_view key, std::string_view remedy = "add it") const;

  void RequireObject(std::span<const std::string_view> known_keys) const;
  std::size_t ListSize() const;
  std::string Text() const;
  double Number(double least, double most, std::string_view unit) const;
  int Count(int least, int most, std::string_view unit) const;
  // For what a double cannot hold: nanoseconds, numbers of steps.
  std::int64_t Whole(std::int64_t least, std::int64_t most, std::string_view unit) const;
  bool Flag() const;
};

// What parsing may lead to: a value takes some 100 bytes of memory, and 2 of the text.
struct Bounds {
  int deepest = 0;
  std::size_t values = std::numeric_limits<std::size_t>::max();
};

// Throws Failure for what is not JSON, for two equal keys in one object and for what is beyond the
// bounds.
nlohmann::json Parse(std::string_view text, const Bounds& bounds);

// What `read` makes of the file, or the first failure as an Error (kInput): "name: what and where",
// "name:line: not JSON: ...".
template <typename Reader>
auto Read(std::string_view text, std::string_view name, int deepest, Reader read)
    -> Result<decltype(read(std::declval<const Node&>()))> {
  try {
    const nlohmann::json root = Parse(text, {.deepest = deepest});
    return read(Node{root, ""});
  } catch (const Failure& failure) {
    return Fail("{}{}", name, failure.message);
  }
}

}  // namespace perseus::json_file
