// The program `perseus`.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "perseus/cli/run_program.h"
#include "perseus/cli/terminal/standard_output.h"

namespace {

// Opens the standard descriptors that the caller closed. Otherwise the next file of the program
// would get such a number, and what the program prints would be written into that file. Writing to
// a standard output that was closed still fails.
void HoldStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // This gets the same number, because it is the lowest free one.
    const int held = ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (held > descriptor) ::close(held);
  }
}

}  // namespace

int main(int argc, char** argv) {
  HoldStandardDescriptors();
  return perseus::cli::RunProgram({stdout, stderr}, argc, argv);
}
