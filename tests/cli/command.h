// Runs the command line of `perseus` in the process of the test.
#pragma once

#include <string>

#include "tests/cli/program.h"

namespace perseus {

class CommandTest : public ProgramTest {
 protected:
  // Calls RunProgram, which takes no time to start a process. Arguments with a redirection, a pipe
  // or another part of the language of the shell need the process that RunProcess starts.
  Outcome Run(const std::string& arguments) const override;
  Outcome RunProcess(const std::string& arguments) const { return ProgramTest::Run(arguments); }
};

}  // namespace perseus
