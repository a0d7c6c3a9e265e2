// What the agent answers a caller who asks for something: a value, or why not, in the words of the
// wire.
#pragma once

#include <fmt/format.h>

#include <tl/expected.hpp>
#include <utility>

#include "perseus/wire/messages.h"

namespace perseus {

// A value or a refusal, ready to be sent. The compiler complains if the caller ignores it.
template <typename T>
class [[nodiscard]] Answer : public tl::expected<T, wire::Refused> {
 public:
  using tl::expected<T, wire::Refused>::expected;
};

template <typename... Args>
[[nodiscard]] tl::unexpected<wire::Refused> Refuse(wire::Refusal code,
                                                   fmt::format_string<Args...> format,
                                                   Args&&... args) {
  return tl::unexpected<wire::Refused>(
      wire::Refused{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace perseus
