// Explains why the operating system refuses something, and what to do about it. If the caller knows
// a better remedy, it uses std::strerror and that remedy instead.
#pragma once

#include <string_view>

#include "perseus/base/result.h"

namespace perseus {

// The error of a call that set `error` (a value of errno): "cannot write: No space left on device
// (free space there, or give a place on another disk)".
Error SystemError(int error, std::string_view what, Place where = {},
                  ErrorKind kind = ErrorKind::kSystem);

[[nodiscard]] inline tl::unexpected<Error> SystemFail(int error, std::string_view what,
                                                      Place where = {},
                                                      ErrorKind kind = ErrorKind::kSystem) {
  return tl::unexpected<Error>(SystemError(error, what, std::move(where), kind));
}

}  // namespace perseus
