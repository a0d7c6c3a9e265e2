#include "perseus/runtime/client/ended_logs.h"

#include <array>
#include <atomic>

#include "perseus/runtime/client/live_sessions.h"

namespace perseus::client {
namespace {

struct KnownLog {
  // Guards the members below. A thread that finds it busy goes on to the next one: in a forked
  // child, it may stay busy.
  std::atomic_flag is_busy = ATOMIC_FLAG_INIT;
  bool is_used = false;
  std::uint32_t generation = 0;  // The ForkGeneration of the process that wrote it.
  EndedLog log;

  bool IsValid() const { return is_used && generation == ForkGeneration(); }
  bool IsOf(const EndedLog& other) const {
    return IsValid() && log.device == other.device && log.number == other.number;
  }
};

std::array<KnownLog, 256> known_logs;

// Calls `use` with the first entry for which it returns true.
template <typename Use>
bool UseFirst(Use use) {
  for (KnownLog& known : known_logs) {
    if (known.is_busy.test_and_set(std::memory_order_acquire)) continue;
    const bool is_done = use(known);
    known.is_busy.clear(std::memory_order_release);
    if (is_done) return true;
  }
  return false;
}

}  // namespace

void RememberEndedLog(const EndedLog& log) {
  const auto set = [&log](KnownLog& known) {
    known.is_used = true;
    known.generation = ForkGeneration();
    known.log = log;
    return true;
  };
  if (UseFirst([&](KnownLog& known) { return known.IsOf(log) && set(known); })) return;
  static_cast<void>(UseFirst([&](KnownLog& known) { return !known.IsValid() && set(known); }));
}

std::optional<EndedLog> FindEndedLog(const EndedLog& wanted) {
  std::optional<EndedLog> found;
  UseFirst([&](const KnownLog& known) {
    if (!known.IsOf(wanted)) return false;
    if (known.log.size == wanted.size && known.log.pipeline == wanted.pipeline) found = known.log;
    return true;
  });
  return found;
}

}  // namespace perseus::client
