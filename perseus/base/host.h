// The machine that this process runs on.
#pragma once

#include <string>

namespace perseus {

// As gethostname() says; "unknown" if it fails.
std::string HostName();

}  // namespace perseus
