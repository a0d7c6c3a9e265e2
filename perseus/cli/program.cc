// The program `perseus`.
#include <cstdio>

#include "perseus/cli/run_program.h"
#include "perseus/cli/terminal/standard_output.h"

int main(int argc, char** argv) {
  perseus::cli::HoldStandardDescriptors();
  return perseus::cli::RunProgram({stdout, stderr}, argc, argv);
}
