// Other programs, run to their end.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"

namespace perseus {

// What `command` (a program, found along PATH, and its arguments; no shell) writes to standard
// output when `input` stands on its standard input. Waits for it. Fails with kUnreachable if there
// is no such program, and with kSystem if it cannot be run or ends with anything but 0: the message
// has the first line of what it complained.
Result<std::string> RunProgram(const std::vector<std::string>& command, const std::string& input);

}  // namespace perseus
