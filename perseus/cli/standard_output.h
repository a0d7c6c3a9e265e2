// Writes to standard output, and reports errors such as a full disk.
#pragma once

#include <string_view>

#include "perseus/base/result.h"

namespace perseus::cli {

// Opens the standard descriptors that the caller closed. Otherwise the next file of the program
// would get such a number, and what the program prints would be written into that file. Writing to
// a standard output that was closed still fails.
void HoldStandardDescriptors();

// Writes and flushes the text. Fails (kSystem) with the reason of the system.
Result<void> Print(std::string_view text);

}  // namespace perseus::cli
