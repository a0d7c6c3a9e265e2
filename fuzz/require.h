// The checks that all fuzzers use. A failed check aborts, which libFuzzer reports as a crash.
#pragma once

#include <cstdlib>
#include <string>

#include "perseus/base/result.h"

namespace perseus::fuzz {

inline void Require(bool condition) {
  if (!condition) std::abort();
}

inline void RequireOneLine(const Error& error) {
  Require(!error.Message().empty() && error.Message().find('\n') == std::string::npos);
}

// What was refused has an error of one line. What was accepted is the same after it is written and
// read again.
template <typename Parsed, typename Parse, typename Format>
void CheckRoundTrip(const Parsed& parsed, Parse parse, Format format) {
  if (!parsed) return RequireOneLine(parsed.error());
  const auto again = parse(format(*parsed));
  Require(again.has_value() && *again == *parsed);
}

}  // namespace perseus::fuzz
