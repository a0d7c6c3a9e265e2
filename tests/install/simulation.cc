// A program outside this project that links the modules with private libraries. The emulator and
// the virtual GPUs need tomlplusplus, and the replay needs zlib. The program reads one file with
// each of these three modules.
#include <perseus/base/file.h>
#include <perseus/simulation/emulator/event_file.h>
#include <perseus/simulation/replay/job_trace.h>
#include <perseus/simulation/virtual_gpu/virtual_node_file.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: simulation EVENTS TIMELINE NODE\n"), 2;
  const auto fail = [](const perseus::Error& error) {
    std::fprintf(stderr, "%s\n", error.Message().c_str());
    return 1;
  };
  const auto event_text = perseus::ReadFile(argv[1]);
  if (!event_text) return fail(event_text.error());
  const auto events = perseus::emulator::ParseEvents(*event_text, argv[1]);
  if (!events) return fail(events.error());

  const auto timeline = perseus::ReadFile(argv[2]);
  if (!timeline) return fail(timeline.error());
  const auto trace = perseus::replay::ParseJobTrace(*timeline, argv[2]);
  if (!trace) return fail(trace.error());

  const auto node = perseus::virtual_gpu::ReadVirtualNode(argv[3]);
  if (!node) return fail(node.error());
  std::printf("%zu stragglers, %zu steps, %d GPUs\n", events->disturbances.size(),
              trace->steps.size(), node->gpus);
  return 0;
}
