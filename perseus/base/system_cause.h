// What the operating system says when it refuses something, and what to do about it. A message that
// knows a better remedy than this table has uses std::strerror and its own remedy.
#pragma once

#include <string>
#include <system_error>

namespace perseus {

// Returns the text of the error number, and in parentheses its remedy:
//   No space left on device (free space there, or name a place on another disk)
std::string CauseAndRemedy(int error);
// The same for an error of the standard library, whose value is an error number.
std::string CauseAndRemedy(const std::error_code& error);

}  // namespace perseus
