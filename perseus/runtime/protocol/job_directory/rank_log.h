// The rank log: the steps that one rank of a job ran. The client library writes the log from its
// background thread. The profiler, `verify`, `trace` and the node daemon read the log. The format
// is JSON Lines: a header, then one line for each step, and sometimes a remark.
//
//   {"perseus_rank_log":1,"dp_rank":0,"pp_rank":3,"tp_rank":0,"gpu":"GPU-…","gpu_name":"…",
//    "host":"n7","pid":4711,"sm_clocks_mhz":[…],"may_set_clocks":true,
//    "epoch_ns":1700000000000000000,"stages":[3,4],"pp_ranks":4}
//   {"step":12,"assignment_version":7,"has_plan":true,"on_plan":true,"begin_ns":…,"end_ns":…,
//    "instructions":[[0,3,0,125000,50012000,1410],…],
//    "energy":[[-40000000,10500000,81234.5],…],
//    "clocks":[[125000,131000,1410,2],…],
//    "temperature_c":61,"power_w":310.5,"limited":true,"limited_by":["power"],
//    "reached":[[10500000,1290],…],"waits":[[40125000,2012000],…]}
//   {"remark":"plan 7 has another schedule …"}
//   {"remark":"the training has ended"}
//
// The last line says that the session was closed after a whole step. The log of a process that was
// killed, or that left a step by an exception, lacks it. It is a remark, so that readers of version
// 0.1 accept it. Another session of the process may follow, with another header.
//
// `stages` contains the pipeline stages of the rank's chunks, ascending, by chunk. Without
// `stages`, a chunk is stage chunk * pp_ranks + pp_rank. `pp_ranks` is the number of ranks of the
// pipeline. A rank that does not know `stages` or `pp_ranks` leaves it out.
//
// An instruction is [kind, microbatch, chunk, begin, duration, MHz]. An energy sample is [from, to,
// joules]. A clock is [requested, applied, MHz, outcome].
//
// `limited_by` says what held the clock down: "power" (the power limit), "temperature",
// "power_brake", "other". `reached` has readings [at, MHz] of the clock, from the time in which the
// power limit held the clock down. `waits` has the parts [begin, duration] of instructions in which
// the GPU waited for other ranks. If `limited_by`, `reached` or `waits` is empty, it is left out.
// Clients of version 0.1 never wrote these keys.
//
// Times of a step are in ns, on CLOCK_MONOTONIC of the rank's host. Virtual GPUs may have their own
// clock (`clock` in the job directory). Then times are in ns on this clock. Add `epoch_ns` to get
// the time since 1970, which is the same on all hosts. Times within a step are counted from the
// step's beginning.
//
// A step whose instructions are timed on a stream begins with its first instruction. Clients of
// version 0.1 wrote the time of the call, which may be steps ahead of the GPU. RankLogReader moves
// such a beginning to the first instruction.
//
// Energy. The counter of a driver changes every 20 to 100 ms. A sample is a new value of the
// counter. The counter took this value after `from` (the last reading of the old value), and not
// after `to`.
//
// A value that is smaller than the one before begins a new count: the energy between the two is
// unknown.
//
// `temperature_c` and `power_w` are left out if the driver does not report them.
//
// A second header with the same pid and epoch comes from the same process, which knew more at that
// time. For example, the process got its lease later. The last header counts.
//
// A process that opens a log truncates it. But if an earlier session of the same process wrote it,
// the process continues it: with another header, the same epoch, and the next numbers of steps.
//
// A line may be incomplete because the process was killed while it wrote. The reader skips such a
// line.
//
// A log that is too long is renamed to dp0-pp3-tp0.jsonl.1, and replaces the previous file of this
// name. Then a new log begins with the same header. So the last half of PERSEUS_LOG_BYTES is always
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
  std::string gpu;  // The UUID. Empty if it is unknown.
  std::string gpu_name;
  std::string host;
  int pid = 0;
  std::vector<int> sm_clocks_mhz;  // Ascending. Empty if the rank cannot set clocks.
  bool may_set_clocks = false;
  Nanoseconds epoch = 0;
  std::vector<int> stages;  // Index: the chunk. Empty if the rank did not name them.
  int pp_ranks = 0;         // 0: unknown.
  friend bool operator==(const RankHeader&, const RankHeader&) = default;
};

// Parses "0,7". An empty text has no stages. Fails if they are not ascending numbers.
Result<std::vector<int>> ParseStages(std::string_view text);

// Whether steps and energies continue from one header to the other, because one process wrote both.
bool IsOfSameProcess(const RankHeader& a, const RankHeader& b);

struct RanInstruction {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  // Counted from the beginning of the step, as all times except those of RanStep.
  Nanoseconds begin = 0;
  Nanoseconds duration = 0;
  int frequency_mhz = 0;  // The requested clock at the beginning. 0: the default clock.
  friend bool operator==(const RanInstruction&, const RanInstruction&) = default;
};
struct EnergySample {
  // The counter took this value in (after, until]. The first sample may have negative times.
  Nanoseconds after = 0;
  Nanoseconds until = 0;
  double energy_j = 0;
  friend bool operator==(const EnergySample&, const EnergySample&) = default;
};
struct ClockChange {
  Nanoseconds requested = 0;
  Nanoseconds applied = 0;  // The time at which the driver's call returned. 0: unknown so far.
  int frequency_mhz = 0;
  int outcome = 0;  // A protocol::ClockOutcome.
  // Whether the request was refused or failed. In both cases the GPU keeps its previous clock.
  bool WasRefused() const { return outcome == 4 || outcome == 5; }
  friend bool operator==(const ClockChange&, const ClockChange&) = default;
};
struct ReachedClock {
  Nanoseconds at = 0;
  int frequency_mhz = 0;
  friend bool operator==(const ReachedClock&, const ReachedClock&) = default;
};
// A part of an instruction in which the GPU waited for other ranks.
struct Wait {
  Nanoseconds begin = 0;
  Nanoseconds duration = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};
struct RanStep {
  std::int64_t step = 0;
  std::int64_t assignment_version = 0;  // The version that the rank followed. 0: none.
  // Whether a plan was in force when the step began. False if only clocks were in force, or the
  // default clocks.
  bool has_plan = false;
  // False if the rank ran its instructions in another order than the plan.
  bool on_plan = false;
  Nanoseconds begin = 0;  // On the clock that the top of this file describes.
  Nanoseconds end = 0;
  std::vector<RanInstruction> instructions;
  std::vector<EnergySample> energy;  // In order of time. Each sample is in one step only.
  std::vector<ClockChange> clocks;
  // Read at the end of the step. Absent: the driver does not report it for this GPU alone.
  std::optional<int> temperature_c;
  std::optional<double> power_w;
  // A reading showed that heat, power or another program limits the clock.
  bool is_limited = false;
  // Empty: nothing held the clock down, or an older client did not record it.
  std::vector<std::string> limited_by;
  std::vector<ReachedClock> reached;  // In order of time.
  std::vector<Wait> waits;
  // Whether something other than the power limit held the clock down, or may have done so. A GPU at
  // its power limit is not disturbed, because this is its usual state.
  bool IsDisturbed() const;
  // The time of all instructions, without waits.
  Nanoseconds TimeOfWork() const;
  // Whether the rank followed the plan without setting a clock, because the rank had no lease of
  // the GPU.
  bool LacksClocks() const;
  friend bool operator==(const RanStep&, const RanStep&) = default;
};
struct Remark {
  static constexpr std::string_view kEnd = "the training has ended";

  std::string text;
  bool IsEnd() const { return text == kEnd; }
  friend bool operator==(const Remark&, const Remark&) = default;
};
using RankRecord = std::variant<RankHeader, RanStep, Remark>;

// Moves the beginning of the step to its first instruction, if it has one. All times stay the same
// on the host's clock. Readings of the clock from before the first instruction are removed.
void BeginWithFirstInstruction(RanStep& step);

// Moves beginnings that are calls ahead of the GPU. A call that comes before the end of the
// previous step shows that the times of this process are on a stream: from then on, each step of
// the process begins with its first instruction.
struct StepBegins {
  // Call it for each record of a log, in order.
  void Correct(RankRecord& record);

  std::optional<RankHeader> header;  // The last one.
  // The end of the last instruction of the previous step. None before the first step.
  std::optional<Nanoseconds> previous_end;
  bool are_on_stream = false;
};

// The record with a final newline.
std::string FormatRecord(const RankRecord& record);
// Parses a line without its newline. `where` names the line: "ranks/dp0-pp3-tp0.jsonl:17".
Result<RankRecord> ParseRecord(std::string_view line, Place where);

// JOBDIR/ranks/dp0-pp3-tp0.jsonl
std::filesystem::path RankLogPath(const std::filesystem::path& job_directory, const RankId& name);

// The path of the older part of the log (*.jsonl.1).
std::filesystem::path OlderRankLogPath(const std::filesystem::path& log);

// Finds the files in a job directory that are named after a rank and have this ending. Returns an
// empty map if no rank has written such a file. Fails as ListJobFolder does, so that a caller does
// not take a failure for an empty directory.
Result<std::map<RankId, std::filesystem::path>> FindRankFiles(
    const std::filesystem::path& job_directory, std::string_view ending);

// The logs of all ranks. For each rank, the path of the newer part.
inline Result<std::map<RankId, std::filesystem::path>> FindRankLogs(
    const std::filesystem::path& job_directory) {
  return FindRankFiles(job_directory, ".jsonl");
}

// Reads one log while the log grows. Starts with the older part of the log. Steps on streams begin
// with their first instruction, even in the log of an older client (see StepBegins).
//
// Any user who may write into the job directory can put any file in place of a log. So, whatever
// the file is, no call waits, and the time and memory of a call are limited. A call fails (kFile)
// for a symbolic link, a pipe, and everything else that OpenJobFile refuses.
class RankLogReader {
 public:
  // `path` is JOBDIR/ranks/NAME.
  explicit RankLogReader(std::filesystem::path path) : path_(std::move(path)) {}

  // Skips the existing content, and returns the header. Useful for a reader that only needs new
  // steps. Call it only before the first ReadNew. Reads only the beginning and the end of a large
  // file.
  struct Passed {
    std::optional<RankHeader> header;
    bool has_steps = false;
  };
  Result<Passed> SkipToEnd();
  // Returns the complete lines since the last call, in order. Empty if the file does not exist yet.
  // A log begins again if the rank restarts, or if the log is renamed. A renamed log is first read
  // to its end. Then the new log is read from its start, with its header. Fails with file and line
  // for a complete line that is wrong; the next call continues after this line. Fails once for a
  // line that is too long, and continues at the end of the file.
  Result<std::vector<RankRecord>> ReadNew();
  // Whether a process has the log open for writing: a rank locks its log until it ends, however it
  // ends. Empty: unknown, because the log cannot be opened, or the file system has no locks.
  std::optional<bool> IsBeingWritten() const;
  // The bytes that all calls have read, for a limit over many logs.
  std::uint64_t bytes_read() const { return bytes_read_; }

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
  // Continues after the last complete line. Returns the text at the end of the file.
  Result<std::string> GoToEnd(const OpenFile& file);
  Place Where(const OpenFile& file) const;

  std::filesystem::path path_;
  std::optional<Identity> read_;  // The file that is being read.
  std::uint64_t offset_ = 0;
  std::string head_;       // The first bytes, which show whether the log began again.
  std::int64_t line_ = 0;  // The number of lines before the offset. -1: not counted.
  // Whether the text at the offset belongs to a line that is too long.
  bool is_within_line_ = false;
  StepBegins begins_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace perseus::protocol
