#include "perseus/runtime/agent/foreign_clock_log.h"

#include <utility>

#include "perseus/runtime/agent/slow_reasons.h"

namespace perseus::agent {

void ForeignClockLog::Log(const std::string& uuid, GpuSnapshot snapshot, spdlog::logger& log) {
  GpuReport report;
  report.snapshot = std::move(snapshot);
  const bool has_foreign_clock = report.snapshot.foreign.has_value();
  if (has_foreign_clock && !has_foreign_clock_) {
    log.warn("{}: {}", uuid, DescribeForeign(report));
  } else if (!has_foreign_clock && has_foreign_clock_) {
    log.info("{}: {}", uuid,
             report.snapshot.is_serving ? "the lock of another program is gone"
                                        : "the lease has ended while another program locks the "
                                          "clock");
  }
  has_foreign_clock_ = has_foreign_clock;
  const std::uint64_t resets = report.snapshot.counts.foreign_resets;
  if (resets != std::exchange(resets_, resets)) {
    log.warn(
        "{}: the SM clock of the job is not in force (another program unlocked it, or the driver "
        "did not perform the write); the agent sets it again",
        uuid);
  }
}

}  // namespace perseus::agent
