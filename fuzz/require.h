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

// Checks the result of a parser. If the parser refused the input, the error must have one line. If
// the parser accepted the input, the value must be equal after it is formatted and parsed again.
template <typename Parsed, typename Parse, typename Format>
void CheckRoundTrip(const Parsed& parsed, Parse parse, Format format) {
  if (!parsed) return RequireOneLine(parsed.error());
  const auto again = parse(format(*parsed));
  Require(again.has_value() && *again == *parsed);
}

}  // namespace perseus::fuzz
