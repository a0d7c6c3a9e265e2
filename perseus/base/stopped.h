// The error of a computation that ends because of a stop request (std::stop_token). The caller made
// that request, so the error does not need a detailed reason.
#pragma once

#include "perseus/base/result.h"

namespace perseus {

[[nodiscard]] inline tl::unexpected<Error> FailAsStopped() {
  return FailAs(ErrorKind::kSystem, "stopped before the computation was complete (try again)");
}

}  // namespace perseus
