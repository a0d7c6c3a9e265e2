// Checks that no JSON makes ParseProfilerState crash or accept a state that it would not write. If
// a state parses, the profiler can continue to measure and to solve from this state.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/runtime/profiler/profiler_state.h"

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto state = perseus::profiler::ParseProfilerState(text, "fuzz");
  if (!state) {
    RequireOneLine(state.error());
    return 0;
  }
  const std::string written = perseus::profiler::FormatProfilerState(*state);
  const auto again = perseus::profiler::ParseProfilerState(written, "again");
  Require(again.has_value() && perseus::profiler::FormatProfilerState(*again) == written);
  for (const auto& [name, gpu] : state->gpus) {
    static_cast<void>(gpu.measurements.Options(name.pp_rank));
  }
  return 0;
}
