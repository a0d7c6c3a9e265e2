// Writes to standard output, and reports errors such as a full disk.
#pragma once

#include <string_view>

#include "perseus/base/result.h"

namespace perseus::cli {

// Writes and flushes the text. Fails (kSystem) with the reason of the system.
Result<void> Print(std::string_view text);

}  // namespace perseus::cli
