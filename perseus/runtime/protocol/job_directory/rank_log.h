// The rank log: which steps one rank of a job ran. The client library writes it from its background
// thread. The profiler, `verify`, `trace` and the node daemon read it. It is JSON Lines: a header,
// then one line for each step, and sometimes a remark.
//
//   {"perseus_rank_log":1,"dp_rank":0,"pp_rank":3,"tp_rank":0,"gpu":"GPU-…","gpu_name":"…",
//    "host":"n7","pid":4711,"sm_clocks_mhz":[…],"may_set_clocks":true,
//    "epoch_ns":1700000000000000000,"stages":[3,4],"pp_ranks":4}
//   {"step":12,"assignment_version":7,"has_plan":true,"on_plan":true,"begin_ns":…,"end_ns":…,
//    "instructions":[[0,3,0,125000,50012000,1410],…],
//    "energy":[[-40000000,10500000,81234.5],…],
//    "clocks":[[125000,131000,1410,2],…],
//    "temperature_c":61,"power_w":310.5,"limited":true,"limited_by":["power"],
//    "reached":[[10500000,1290],…]}
//   {"remark":"plan 7 has another schedule …"}
//
// `stages` are the pipeline stages of the rank's chunks, ascending, by chunk. Without it, a chunk
// is stage chunk * pp_ranks + pp_rank. `pp_ranks` is the number of ranks of the pipeline. A rank
// that does not know one of them leaves it out.
//
// An instruction is [kind, microbatch, chunk, begin, duration, MHz]. An energy sample is [from, to,
// joules]. A clock is [requested, applied, MHz, outcome].
//
// `limited_by` says what held the clock down: "power" (the power limit), "temperature",
// "power_brake", "other". `reached` has readings [at, MHz] of the clock while the power limit held
// it down. Both are left out if they are empty. Clients of version 0.1 never wrote them.
//
// Times of a step are in ns of CLOCK_MONOTONIC of its host. On virtual GPUs with their own clock,
// they are in ns of that clock (`clock` in the job directory). Add `epoch_ns` to get the time since
// 1970, which different hosts share. Times within a step start at the step's beginning.
//
// Energy. The counter of a driver moves every 20 to 100 ms. A sample is a new value of the counter.
// The counter took this value after `from` (the last reading of the old value) and not after `to`.
//
// A second header with the same pid and epoch comes from the same process, which then knew more:
// for example, it got its lease later. The last header counts.
//
// A rank that opens its log truncates it. The reader skips a line that is not complete, because the
// process was killed while it wrote.
//
// A log that is too long is renamed (dp0-pp3-tp0.jsonl.1, in place of the previous file of this
// name), and a new log begins with the same header. So the last half of PERSEUS_LOG_BYTES is always
// available. A process that follows the log misses nothing, unless it is behind by half of
// PERSEUS_LOG_BYTES.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/runtime/protocol/job_directory/rank_id.h"

namespace perseus::protocol {

struct RankHeader {
  RankId name;
  std::string gpu;  // Its UUID. Empty if it is unknown.
  std::string gpu_name;
  std::string host;
  int pid = 0;
  std::vector<int> sm_clocks_mhz;  // Ascending. Empty if clocks cannot be set.
  bool may_set_clocks = false;
  Nanoseconds epoch = 0;
  std::vector<int> stages;  // By chunk. Empty if the rank did not name them.
  int pp_ranks = 0;         // 0: unknown.
  friend bool operator==(const RankHeader&, const RankHeader&) = default;
};

// Parses "0,7". An empty text has no stages. Fails if they are not ascending numbers.
Result<std::vector<int>> ParseStages(std::string_view text);

// Whether steps and energies continue from one header to the other.
bool IsOfSameProcess(const RankHeader& a, const RankHeader& b);

struct RanInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  Nanoseconds begin = 0;  // From the beginning of the step, as all times except RanStep's.
  Nanoseconds duration = 0;
  int frequency_mhz = 0;  // The requested clock at the beginning. 0: the default clock.
  friend bool operator==(const RanInstruction&, const RanInstruction&) = default;
};
struct EnergySample {
  // The counter took this value in (after, until]. May be negative for the first sample.
  Nanoseconds after = 0;
  Nanoseconds until = 0;
  double energy_j = 0;
  friend bool operator==(const EnergySample&, const EnergySample&) = default;
};
struct ClockChange {
  Nanoseconds requested = 0;
  Nanoseconds applied = 0;  // When the driver's call returned. 0: unknown so far.
  int frequency_mhz = 0;
  int outcome = 0;  // A protocol::ClockOutcome.
  // Whether the request was refused or failed. Then the GPU keeps its previous clock.
  bool WasRefused() const { return outcome == 4 || outcome == 5; }
  friend bool operator==(const ClockChange&, const ClockChange&) = default;
};
struct ReachedClock {
  Nanoseconds at = 0;
  int frequency_mhz = 0;
  friend bool operator==(const ReachedClock&, const ReachedClock&) = default;
};
struct RanStep {
  std::int64_t step = 0;
  std::int64_t assignment_version = 0;  // The one that the rank followed. 0: none.
  // Whether a plan was in force when the step began, not only clocks or the default clocks.
  bool has_plan = false;
  // False if the rank ran another order than the plan in force.
  bool on_plan = false;
  Nanoseconds begin = 0;  // By the clock above.
  Nanoseconds end = 0;
  std::vector<RanInstruction> instructions;
  std::vector<EnergySample> energy;  // In order of time. Each sample is in one step only.
  std::vector<ClockChange> clocks;
  int temperature_c = 0;  // At the end of the step. 0: unknown.
  double power_w = 0;
  // A reading showed that heat, power or another program limits the clock.
  bool is_limited = false;
  std::vector<std::string> limited_by;  // Empty: nothing, or an older client did not record it.
  std::vector<ReachedClock> reached;    // In order of time.
  // Whether something else than the power limit held the clock down, or may have. A GPU at its
  // power limit is not disturbed: it works as usual.
  bool IsDisturbed() const;
  // Whether the rank followed the plan without setting a clock, because it had no lease of the GPU.
  bool LacksClocks() const;
  friend bool operator==(const RanStep&, const RanStep&) = default;
};
struct Remark {
  std::string text;
  friend bool operator==(const Remark&, const Remark&) = default;
};
using RankRecord = std::variant<RankHeader, RanStep, Remark>;

// The record with a final newline.
std::string FormatRecord(const RankRecord& record);
// Parses a line without its newline. `where` names the line: "ranks/dp0-pp3-tp0.jsonl:17".
Result<RankRecord> ParseRecord(std::string_view line, Place where);

// JOBDIR/ranks/dp0-pp3-tp0.jsonl
std::filesystem::path RankLogPath(const std::filesystem::path& job_directory, const RankId& name);

// The path of the older part of the log.
std::filesystem::path OlderRankLogPath(const std::filesystem::path& log);

// Finds the files in a job directory that are named after a rank, with this ending. Returns an
// empty map if no rank has written such a file. Fails (kFile) if JOBDIR/ranks is a symbolic link.
Result<std::map<RankId, std::filesystem::path>> FindRankFiles(
    const std::filesystem::path& job_directory, std::string_view ending);

// The logs of the ranks: the newer part of each.
inline Result<std::map<RankId, std::filesystem::path>> FindRankLogs(
    const std::filesystem::path& job_directory) {
  return FindRankFiles(job_directory, ".jsonl");
}

// Reads one log while it grows. It starts with the older part of the log.
//
// Any user who may write into the job directory can put any file in place of a log. So no call
// waits or takes more than a bounded time and memory, whatever the file is. A call fails (kFile)
// for a symbolic link, a pipe, and whatever else is not a regular file.
class RankLogReader {
 public:
  explicit RankLogReader(std::filesystem::path path) : path_(std::move(path)) {}

  // Skips the existing content, and returns the header. For a reader that only needs new steps.
  // Call it only before the first ReadNew. Reads only the beginning and the end of a large file.
  struct Passed {
    std::optional<RankHeader> header;
    bool has_steps = false;
  };
  Result<Passed> SkipToEnd();
  // Returns the complete lines since the last call, in order. Empty if the file does not exist yet.
  // If the log began again (because the rank restarted, or because the log was renamed and is read
  // to its end), it is read from its start, with its header. Fails with file and line for a
  // complete line that is wrong. The next call continues after this line. Fails once for a line
  // that is too long, and continues at the end of the file.
  Result<std::vector<RankRecord>> ReadNew();

 private:
  // Identifies a file independently of its name.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t number = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  class OpenFile;
  static std::optional<RankHeader> HeaderOf(const OpenFile& file);
  void BeginWith(const OpenFile& file);
  Result<std::vector<RankRecord>> ReadNewOf(const OpenFile& file);
  // Continues after the last complete line. Returns the last text of the file.
  Result<std::string> GoToEnd(const OpenFile& file);
  Place Where(const OpenFile& file) const;

  std::filesystem::path path_;
  std::optional<Identity> read_;  // The file that is being read.
  std::uint64_t offset_ = 0;
  std::string head_;       // The first bytes, which show whether the log began again.
  std::int64_t line_ = 0;  // Lines before the offset. -1: not counted.
  // The text at the offset belongs to a line that is too long.
  bool is_within_line_ = false;
};

}  // namespace perseus::protocol
