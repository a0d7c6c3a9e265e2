// Which request is which, over several programs: W3C Trace Context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/random.h"

namespace perseus::http {

// The trace's id (32 hexadecimal digits) of a `traceparent`, nothing for what is none to the
// letter.
std::optional<std::string> TraceOf(std::string_view traceparent);

// Ids of traces that begin here: unlike each other, not secret.
class TraceIds {
 public:
  explicit TraceIds(std::uint64_t seed) : random_{seed} {}
  std::string Next();

 private:
  SplitMix64 random_;
};

}  // namespace perseus::http
