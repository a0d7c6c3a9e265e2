// Says in the agent's log when another program sets the clock of a leased GPU, and when it no
// longer does: once each.
//
// Not thread-safe.
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <string>

#include "perseus/runtime/agent/gpu_worker.h"

namespace perseus::agent {

class ForeignClockLog {
 public:
  // Call it from time to time with the current state of the GPU.
  void Log(const std::string& uuid, GpuSnapshot snapshot, spdlog::logger& log);

 private:
  bool has_foreign_clock_ = false;  // As logged last.
  std::uint64_t resets_ = 0;
};

}  // namespace perseus::agent
