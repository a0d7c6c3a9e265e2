#include "perseus/runtime/client/session_core.h"

#include <fmt/core.h>

#include <string>
#include <utility>

namespace perseus::client {
namespace {

// The instructions of a fast schedule in several seconds, in case a file system blocks the
// background thread that long.
constexpr std::size_t kEvents = 16'384;

std::string Describe(const Instruction& what) {
  return fmt::format("{} of microbatch {}{}", Name(what.kind), what.microbatch,
                     what.chunk == 0 ? "" : fmt::format(", chunk {}", what.chunk));
}

std::string WhoIs(const protocol::RankId& name) { return fmt::format("perseus: {}", Name(name)); }

}  // namespace

SessionCore::SessionCore(Settings from)
    : settings(std::move(from)),
      warnings(settings.warning_output, WhoIs(settings.name)),
      events(kEvents),
      streams(clock_requester, warnings),
      live_(ClaimLiveSession(), ReleaseLiveSession) {}

void SessionCore::ReportTroubles() {
  streams.ReportTroubles();
  if (trouble.is_off_plan.load(std::memory_order_acquire)) {
    warnings.Once(
        "off-plan",
        fmt::format(
            "step {}, instruction {}: the plan has {}, and training {}; the default "
            "clocks are used until the next step (is the plan for this schedule?)",
            trouble.step, trouble.position,
            trouble.has_expected ? Describe(trouble.expected) : std::string("no more"),
            trouble.has_got ? "began " + Describe(trouble.got) : std::string("ended the step")));
  }
  if (const int lacking = clock_requester.lacking_mhz(); lacking != 0) {
    warnings.Once("clocks",
                  fmt::format("the GPU has no clock of {} MHz, which the plan has; the "
                              "nearest faster clock is used (plan with a profile of this type of "
                              "GPU)",
                              lacking));
  }
  if (trouble.has_expired.load(std::memory_order_acquire)) {
    warnings.Once("expired",
                  "the plan has expired and is no longer followed; the default clocks are used "
                  "(use a new plan: perseus_use_plan, or an assignment)");
  }
  // Without a job directory, nothing is recorded, so the record lacks nothing.
  if (trouble.is_full.load(std::memory_order_relaxed) && !settings.job_directory.empty()) {
    warnings.Once("full",
                  "instructions came faster than they could be written down; the record does not "
                  "contain the affected steps (is PERSEUS_JOB_DIR on a slow file system?)");
  }
  if (trouble.lacks_stream.load(std::memory_order_relaxed)) {
    warnings.Once(
        "no stream",
        "instructions have no stream, but this process computes on a GPU with CUDA: their "
        "times and clock changes are those of the launches, not of the work (pass the "
        "stream of the work: stream=torch.cuda.current_stream() in Python, "
        "perseus_instruction_begin_on in C; if each instruction waits for its work, "
        "ignore this)");
  }
  if (trouble.is_bad_kind.load(std::memory_order_relaxed)) {
    warnings.Once(
        "kind",
        "an instruction of a kind, microbatch or chunk that does not exist was begun, and "
        "is ignored (kinds are PERSEUS_FORWARD to PERSEUS_OPTIMIZER_STEP; numbers count "
        "from 0)");
  }
}

}  // namespace perseus::client
