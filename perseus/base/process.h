// Runs another program and waits for its end.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"

namespace perseus {

// Runs `command` (a program, searched along PATH, and its arguments) without a shell, with `input`
// as its standard input. Waits for its end and returns its standard output. Fails with
//   kUnreachable  if the program is not installed
//   kSystem       if it cannot run, or its exit status is not 0; the message then has the first
//                 line of its standard error
Result<std::string> RunProgram(const std::vector<std::string>& command, const std::string& input);

}  // namespace perseus
