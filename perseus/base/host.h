// The machine that this process runs on.
#pragma once

#include <string>

#include "perseus/base/result.h"

namespace perseus {

// As gethostname() says; "unknown" if it fails.
std::string HostName();
// Another one with each boot of the machine.
Result<std::string> BootId();

}  // namespace perseus
