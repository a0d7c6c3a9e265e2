#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

std::string_view NameOf(Operation operation) {
  switch (operation) {
    case Operation::kLaunch:
      return "launch";
    case Operation::kKernel:
      return "kernel";
    case Operation::kCopy:
      return "copy";
    case Operation::kCollective:
      return "collective";
    case Operation::kHostFunction:
      return "host_function";
  }
  return "";
}

std::string WhyTooFewGpus(Operation operation, int gpu_count) {
  const bool needs_two = operation == Operation::kCopy || operation == Operation::kCollective;
  return needs_two && gpu_count < 2 ? "the node has only one GPU" : "";
}

void Sleep(Clock& clock, Nanoseconds duration) {
  const Nanoseconds until = clock.Now() + duration;
  while (clock.Now() < until) clock.WaitUntil(until);
}

}  // namespace perseus::qualifier
