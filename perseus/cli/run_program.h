// The command line of `perseus`, as a function.
#pragma once

#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {

// Finds the verb and runs it. Turns an error into one line on `streams.err`, and returns the exit
// status of the program.
//
// Some state belongs to the whole process: its standard input, its signals, and the descriptors
// that child processes inherit. A verb may block or ignore signals, and does not undo this change.
int RunProgram(const Streams& streams, int argc, const char* const* argv);

}  // namespace perseus::cli
