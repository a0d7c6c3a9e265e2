// The agent's answer to a request: a value, or a refusal (protocol::Refused).
#pragma once

#include <fmt/core.h>

#include <tl/expected.hpp>
#include <utility>

#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

// A value or a refusal that is ready to be sent.
template <typename T>
using Answer = Result<T, protocol::Refused>;

template <typename... Args>
[[nodiscard]] tl::unexpected<protocol::Refused> Refuse(protocol::Refusal code,
                                                       fmt::format_string<Args...> format,
                                                       Args&&... args) {
  return tl::unexpected<protocol::Refused>(
      protocol::Refused{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace perseus::agent
