// Errors of the planner name the flags of the program. Python has keyword arguments in their place.
#pragma once

#include <string>
#include <string_view>

namespace perseus {

// The message with the keyword arguments of perseus.plan: "add --memory GIB" becomes "add
// memory_gib", and "add --microbatches 96" becomes "add microbatches=96".
std::string WithKeywordNames(std::string_view message);

}  // namespace perseus
