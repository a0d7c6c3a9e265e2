// The main function of the program `perseus`.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "perseus/cli/run_program.h"
#include "perseus/cli/terminal/standard_output.h"

namespace {

// Opens the standard descriptors (0, 1, 2) that the caller closed. Otherwise the next file that the
// program opens would get this number, and the program's output would be written into this file. If
// standard output was closed, writing to it still fails.
void HoldStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // The new descriptor has the number of the closed descriptor, because this is the lowest free
    // number.
    const int held = ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (held > descriptor) ::close(held);
  }
}

}  // namespace

int main(int argc, char** argv) {
  HoldStandardDescriptors();
  return perseus::cli::RunProgram({stdout, stderr}, argc, argv);
}
