// The command line of `perseus`, as a function.
#pragma once

#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {

// Finds the verb and runs it. Turns an error into one line on `streams.err`, and returns the exit
// status of the program.
//
// Some things belong to the process: its standard input, its signals (a verb may block or ignore
// some, and does not undo this), and the descriptors that child processes inherit.
int RunProgram(const Streams& streams, int argc, const char* const* argv);

}  // namespace perseus::cli
