// What one rank of a job ran, step by step: written by the client library's own thread, read by
// whoever profiles, verifies or draws. JSON Lines: a header, then a line a step, now and then a
// remark.
//
//   {"perseus_rank_log":1,"dp_rank":0,"pp_rank":3,"tp_rank":0,"gpu":"GPU-…","gpu_name":"…","host":"n7",
//    "pid":4711,"sm_clocks_mhz":[…],"may_set_clocks":true,"epoch_ns":1700000000000000000}
//   {"step":12,"assignment_version":7,"on_plan":true,"begin_ns":…,"end_ns":…,
//    "instructions":[[0,3,0,125000,50012000,1410],…],           kind, microbatch, chunk, begin,
//    duration, MHz "energy":[[-40000000,10500000,81234.5],…],                 from, to, joules
//    "clocks":[[125000,131000,1410,2],…],                       requested, applied, MHz, outcome
//    "temperature_c":61,"power_w":310.5,"limited":false}
//   {"remark":"plan 7 is of another schedule …"}
//
// Times of a step are nanoseconds of CLOCK_MONOTONIC of its host; `epoch_ns` is what to add to get
// time since 1970, so that hosts can be laid side by side. Times within a step count from its
// begin.
//
// Energy. A driver's counter moves every 20–100 ms. A sample is a value that was new: it became
// true after `from` (the last look that still saw the old value) and not after `to`.
//
// A header that comes again with the same pid and epoch is of the same process, which learned more:
// it was lent its GPU later, say. The last one holds.
//
// A log begins anew (truncated) when its rank opens; a line that was not written whole (its process
// was killed) is passed over by the reader.
//
// A log that gets too long is renamed (dp0-pp3-tp0.jsonl.1, in place of what had that name), and
// another begins with the same header. So of a long job there is at least the half that
// PERSEUS_LOG_BYTES allows, and who follows the log misses nothing, unless he stays behind by as
// much.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/runtime/protocol/rank_id.h"

namespace perseus::protocol {

struct RankHeader {
  RankId name;
  std::string gpu;  // UUID; empty where it could not be told.
  std::string gpu_name;
  std::string host;
  int pid = 0;
  std::vector<int> sm_clocks_mhz;  // Ascending; empty where clocks cannot be set.
  bool may_set_clocks = false;
  Nanoseconds epoch = 0;
  friend bool operator==(const RankHeader&, const RankHeader&) = default;
};

// Steps and energies go on from one to the other.
bool IsOfSameProcess(const RankHeader& a, const RankHeader& b);

struct RanInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  Nanoseconds begin = 0;  // From the step's begin.
  Nanoseconds duration = 0;
  int frequency_mhz = 0;  // Requested, in force when it began; 0: what the GPU had before.
  friend bool operator==(const RanInstruction&, const RanInstruction&) = default;
};
struct EnergySample {
  Nanoseconds after =
      0;  // The counter took this value in (after, until]; from the step's begin, may be
  Nanoseconds until = 0;  // negative for the first.
  double energy_j = 0;
  friend bool operator==(const EnergySample&, const EnergySample&) = default;
};
struct ClockChange {
  Nanoseconds requested = 0;  // From the step's begin.
  Nanoseconds applied = 0;    // When the driver's call returned; 0 if it was not told yet.
  int frequency_mhz = 0;
  int outcome = 0;  // wire's ClockOutcome.
  // Refused or failed: the GPU has the clock that it had before.
  bool WasRefused() const { return outcome == 4 || outcome == 5; }
  friend bool operator==(const ClockChange&, const ClockChange&) = default;
};
struct RanStep {
  std::int64_t step = 0;
  std::int64_t assignment_version = 0;  // Of the assignment followed; 0: none.
  bool on_plan = false;   // Its order was the plan's throughout (or there were no plan but clocks).
  Nanoseconds begin = 0;  // CLOCK_MONOTONIC.
  Nanoseconds end = 0;
  std::vector<RanInstruction> instructions;
  std::vector<EnergySample> energy;  // In time's order; each sample in one step only.
  std::vector<ClockChange> clocks;
  int temperature_c = 0;  // At the step's end; 0: not told.
  double power_w = 0;
  bool is_limited = false;  // Heat, power or somebody else held the clock down at some look.
  friend bool operator==(const RanStep&, const RanStep&) = default;
};
struct Remark {
  std::string text;
  friend bool operator==(const Remark&, const Remark&) = default;
};
using RankRecord = std::variant<RankHeader, RanStep, Remark>;

// With the final newline.
std::string FormatRecord(const RankRecord& record);
// One line without its newline; `where` is "ranks/dp0-pp3-tp0.jsonl:17".
Result<RankRecord> ParseRecord(std::string_view line, std::string_view where);

// JOBDIR/ranks/dp0-pp3-tp0.jsonl
std::filesystem::path RankLogPath(const std::filesystem::path& job_directory, const RankId& name);

// Where the part before is.
std::filesystem::path OlderRankLogPath(const std::filesystem::path& log);

// Follows one log while it grows, from its older part on.
class RankLogReader {
 public:
  explicit RankLogReader(std::filesystem::path path) : path_(std::move(path)) {}

  // Passes over all that is there but the header, which it returns if there is one: for whoever
  // follows what comes, not what was. Only before the first ReadNew.
  struct Passed {
    std::optional<RankHeader> header;
    bool has_steps = false;
  };
  Result<Passed> SkipToEnd();
  // What came whole since the last call, in order; nothing if the file does not exist yet. A log
  // that began anew (a restarted rank, or one that got too long and was read to its end) is read
  // from its start, with its header first again. Fails
  // with file and line for a line that is whole and wrong; the next call goes on behind it.
  Result<std::vector<RankRecord>> ReadNew();

 private:
  // Which file it is, whatever its name.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t number = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  class OpenFile;
  static std::optional<RankHeader> HeaderOf(const OpenFile& file);
  void BeginWith(const OpenFile& file);
  Result<std::vector<RankRecord>> ReadNewOf(const OpenFile& file);

  std::filesystem::path path_;
  std::optional<Identity> read_;  // The one that is being read.
  std::uint64_t offset_ = 0;
  std::string head_;  // The first bytes, by which a log that began anew is told.
  std::int64_t line_ = 0;
};

}  // namespace perseus::protocol
