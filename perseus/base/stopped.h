// What a computation says that was told to stop by its std::stop_token. Whoever stopped it knows
// why, so there is nothing to find out from it.
#pragma once

#include "perseus/base/result.h"

namespace perseus {

[[nodiscard]] inline tl::unexpected<Error> FailAsStopped() {
  return FailAs(ErrorKind::kSystem, "stopped before it was done (ask again)");
}

}  // namespace perseus
