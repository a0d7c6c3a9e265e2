// A span of a trace: what happened, from when to when, and within which other span.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace perseus::otlp {

struct Span {
  // The numbers of OTLP.
  enum class Kind { kInternal = 1, kServer = 2, kConsumer = 5 };
  using Value = std::variant<std::string, std::int64_t, double>;

  std::string trace;   // 32 hexadecimal digits.
  std::string span;    // 16 hexadecimal digits.
  std::string parent;  // As `span`. Empty: the span has no parent.
  std::string name;
  Kind kind = Kind::kInternal;
  std::int64_t begin_ns = 0;  // Since 1970.
  std::int64_t end_ns = 0;
  std::vector<std::pair<std::string, Value>> attributes = {};
  std::string error = {};  // What failed. Empty: nothing.
  std::string node = {};   // The node where it happened. Empty: this process.
};

}  // namespace perseus::otlp
