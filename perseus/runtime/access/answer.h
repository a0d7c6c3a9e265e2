// The agent's answer to a request: a value, or a refusal as the protocol has it.
#pragma once

#include <fmt/core.h>

#include <tl/expected.hpp>
#include <utility>

#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

// A value or a refusal, ready to be sent. The compiler warns if the caller ignores it.
template <typename T>
class [[nodiscard]] Answer : public tl::expected<T, protocol::Refused> {
 public:
  using tl::expected<T, protocol::Refused>::expected;
  // Lets PERSEUS_ASSIGN_OR_RETURN and PERSEUS_RETURN_IF_ERROR (result.h) pass the refusal on.
  friend tl::unexpected<protocol::Refused> Fail(const Answer& refused) {
    return tl::unexpected<protocol::Refused>(refused.error());
  }
};

template <typename... Args>
[[nodiscard]] tl::unexpected<protocol::Refused> Refuse(protocol::Refusal code,
                                                       fmt::format_string<Args...> format,
                                                       Args&&... args) {
  return tl::unexpected<protocol::Refused>(
      protocol::Refused{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace perseus::agent
