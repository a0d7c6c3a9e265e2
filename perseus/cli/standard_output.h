// Standard output, where a disk may be full as anywhere else.
#pragma once

#include <string_view>

#include "perseus/base/result.h"

namespace perseus::cli {

// Prints what a verb has to say, all of it: flushed. Fails (kSystem) with the system's reason.
Result<void> Print(std::string_view text);

}  // namespace perseus::cli
