// The machine that this process runs on.
#pragma once

#include <string>

#include "perseus/base/result.h"

namespace perseus {

// The host name (gethostname), or "unknown" if the call fails.
std::string HostName();
// The kernel's random UUID of this boot. Every boot of the machine has a different one.
Result<std::string> BootId();

}  // namespace perseus
