#include "perseus/runtime/protocol/job_directory/rank_log.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/json_file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"
#include "perseus/base/number.h"
#include "perseus/base/system_cause.h"
#include "perseus/base/units.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::protocol {
namespace {

using json_file::Node;
using json_file::Throw;

constexpr const char* kRanksFolder = "ranks";
// The depth of record -> instructions -> instruction -> value.
constexpr int kMaxRecordDepth = 4;
constexpr int kMostProcess = std::numeric_limits<int>::max();
// Sums and differences of an epoch and three times fit into 64 bits.
constexpr Nanoseconds kFurthestEpoch = std::numeric_limits<Nanoseconds>::max() / 4;  // Year 2043.
constexpr Nanoseconds kLongest = kFurthestEpoch / 4;                                 // 18 years.
constexpr double kHighestCounterJ = 1e15;
constexpr int kHottest = 1000;
constexpr int kMostOutcome = 127;

// ---- Writing ----

// Returns a text from outside (the name of a GPU or a host) as JSON. Replaces invalid UTF-8.
std::string Quoted(std::string_view text) { return JsonText(nlohmann::json(text)); }

class Formatter {
 public:
  std::string operator()(const RankHeader& header) {
    std::string pipeline;
    if (!header.stages.empty()) {
      pipeline += fmt::format(",\"stages\":[{}]", fmt::join(header.stages, ","));
    }
    if (header.pp_ranks > 0) pipeline += fmt::format(",\"pp_ranks\":{}", header.pp_ranks);
    return fmt::format(
        "{{\"perseus_rank_log\":1,\"dp_rank\":{},\"pp_rank\":{},\"tp_rank\":{},\"gpu\":{},"
        "\"gpu_name\":{},\"host\":{},\"pid\":{},\"sm_clocks_mhz\":[{}],\"may_set_clocks\":{},"
        "\"epoch_ns\":{}{}}}\n",
        header.name.dp_rank, header.name.pp_rank, header.name.tp_rank, Quoted(header.gpu),
        Quoted(header.gpu_name), Quoted(header.host), header.pid,
        fmt::join(header.sm_clocks_mhz, ","), header.may_set_clocks, header.epoch, pipeline);
  }

  std::string operator()(const RanStep& step) {
    Append(
        "{{\"step\":{},\"assignment_version\":{},\"has_plan\":{},\"on_plan\":{},"
        "\"begin_ns\":{},\"end_ns\":{}",
        step.step, step.assignment_version, step.has_plan, step.on_plan, step.begin, step.end);
    List("instructions", step.instructions, [&](const RanInstruction& ran) {
      Append("[{},{},{},{},{},{}]", static_cast<int>(ran.kind), ran.microbatch, ran.chunk,
             ran.begin, ran.duration, ran.frequency_mhz);
    });
    List("energy", step.energy, [&](const EnergySample& sample) {
      Append("[{},{},{}]", sample.after, sample.until, sample.energy_j);
    });
    List("clocks", step.clocks, [&](const ClockChange& change) {
      Append("[{},{},{},{}]", change.requested, change.applied, change.frequency_mhz,
             change.outcome);
    });
    if (step.temperature_c) Append(",\"temperature_c\":{}", *step.temperature_c);
    if (step.power_w) Append(",\"power_w\":{}", *step.power_w);
    Append(",\"limited\":{}", step.is_limited);
    if (!step.limited_by.empty()) {
      List("limited_by", step.limited_by,
           [&](const std::string& name) { Append("{}", Quoted(name)); });
    }
    if (!step.reached.empty()) {
      List("reached", step.reached,
           [&](const ReachedClock& clock) { Append("[{},{}]", clock.at, clock.frequency_mhz); });
    }
    if (!step.waits.empty()) {
      List("waits", step.waits,
           [&](const Wait& wait) { Append("[{},{}]", wait.begin, wait.duration); });
    }
    text_ += "}\n";
    return std::move(text_);
  }

  std::string operator()(const Remark& remark) {
    return fmt::format("{{\"remark\":{}}}\n", Quoted(remark.text));
  }

 private:
  template <typename... Args>
  void Append(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...);
  }

  template <typename Rows, typename Write>
  void List(std::string_view key, const Rows& rows, Write write) {
    Append(",\"{}\":[", key);
    bool is_first = true;
    for (const auto& row : rows) {
      if (!std::exchange(is_first, false)) text_ += ',';
      write(row);
    }
    text_ += ']';
  }

  std::string text_;
};

// ---- Reading ----

Nanoseconds Time(const Node& node, Nanoseconds least) {
  return node.Whole(least, kLongest, "nanoseconds");
}

// Reads a list of `size` numbers. Rows have no keys, because keys would make the log much longer.
Node Row(const Node& node, std::size_t size) {
  if (node.ListSize() != size) Throw("{} is not a list of {} numbers", node.path, size);
  return node;
}

template <typename Value, typename ReadRow>
std::vector<Value> ReadRows(const Node& step, std::string_view key, std::size_t size,
                            ReadRow read) {
  const Node rows = step.Member(key);
  const std::size_t count = rows.ListSize();
  std::vector<Value> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) values.push_back(read(Row(rows[i], size)));
  return values;
}

RanInstruction ReadInstruction(const Node& row) {
  constexpr int kLastKind = static_cast<int>(kLastComputation);
  RanInstruction ran;
  ran.kind = static_cast<InstructionKind>(row[0].Count(0, kLastKind, "a kind's number"));
  ran.microbatch = row[1].Count(-1, kMostMicrobatches, "a microbatch's number");
  ran.chunk = row[2].Count(0, kHighestRank, "a chunk's number");
  ran.begin = Time(row[3], 0);
  ran.duration = Time(row[4], 0);
  ran.frequency_mhz = row[5].Count(0, kHighestFrequencyMhz, "MHz");
  return ran;
}

EnergySample ReadSample(const Node& row) {
  EnergySample sample{Time(row[0], -kLongest), Time(row[1], -kLongest),
                      row[2].Number(-kHighestCounterJ, kHighestCounterJ, "joules")};
  if (sample.until < sample.after) Throw("{} ends before it begins", row.path);
  return sample;
}

ClockChange ReadChange(const Node& row) {
  return {Time(row[0], -kLongest), Time(row[1], -kLongest),
          row[2].Count(0, kHighestFrequencyMhz, "MHz"),
          row[3].Count(0, kMostOutcome, "an outcome's number")};
}

ReachedClock ReadReached(const Node& row) {
  return {Time(row[0], 0), row[1].Count(1, kHighestFrequencyMhz, "MHz")};
}

Wait ReadWait(const Node& row) { return {Time(row[0], 0), Time(row[1], 0)}; }

RanStep ReadStep(const Node& node) {
  node.RequireObject({"step", "assignment_version", "has_plan", "on_plan", "begin_ns", "end_ns",
                      "energy", "instructions", "clocks", "temperature_c", "power_w", "limited",
                      "limited_by", "reached", "waits"});
  RanStep step;
  step.step = node.Member("step").Whole(0, json_file::kLargestWhole, "a step's number");
  step.assignment_version = node.Member("assignment_version")
                                .Whole(0, json_file::kLargestWhole, "a version of the assignment");
  step.has_plan = node.Member("has_plan").Flag();
  step.on_plan = node.Member("on_plan").Flag();
  step.begin = Time(node.Member("begin_ns"), 0);
  step.end = Time(node.Member("end_ns"), step.begin);
  step.instructions = ReadRows<RanInstruction>(node, "instructions", 6, ReadInstruction);
  step.energy = ReadRows<EnergySample>(node, "energy", 3, ReadSample);
  step.clocks = ReadRows<ClockChange>(node, "clocks", 4, ReadChange);
  if (node.Has("temperature_c")) {
    step.temperature_c = node.Member("temperature_c").Count(-kHottest, kHottest, "degrees Celsius");
  }
  if (node.Has("power_w")) {
    step.power_w = node.Member("power_w").Number(0, kMostMeasuredWatts, "watts");
  }
  step.is_limited = node.Member("limited").Flag();
  if (node.Has("limited_by")) {
    const Node names = node.Member("limited_by");
    const std::size_t count = names.ListSize();
    for (std::size_t i = 0; i < count; ++i) step.limited_by.push_back(names[i].Text());
  }
  if (node.Has("reached")) step.reached = ReadRows<ReachedClock>(node, "reached", 2, ReadReached);
  if (node.Has("waits")) step.waits = ReadRows<Wait>(node, "waits", 2, ReadWait);
  return step;
}

// Whether stages are ascending. Schedules number the chunks of a rank by ascending stage, so a
// record has to do the same.
bool IsAscending(const std::vector<int>& stages) {
  return std::adjacent_find(stages.begin(), stages.end(), std::greater_equal()) == stages.end();
}

// Reads the keys that a rank may leave out.
void ReadPipeline(const Node& node, RankHeader& header) {
  if (node.Has("stages")) {
    const Node stages = node.Member("stages");
    const std::size_t count = stages.ListSize();
    for (std::size_t i = 0; i < count; ++i) {
      header.stages.push_back(stages[i].Count(0, kHighestRank, "a stage's number"));
    }
    if (!IsAscending(header.stages)) Throw("{} is not in ascending order", stages.path);
  }
  if (node.Has("pp_ranks")) {
    header.pp_ranks = node.Member("pp_ranks").Count(1, HighestRanks().pp_rank + 1, "ranks");
  }
}

RankHeader ReadHeader(const Node& node) {
  node.RequireObject({"perseus_rank_log", "dp_rank", "pp_rank", "tp_rank", "gpu", "gpu_name",
                      "host", "pid", "sm_clocks_mhz", "may_set_clocks", "epoch_ns", "stages",
                      "pp_ranks"});
  if (node.Member("perseus_rank_log").value != 1) {
    Throw(
        "perseus_rank_log is not 1, the version that this perseus reads (install the same version "
        "everywhere)");
  }
  RankHeader header;
  header.name = ReadRankId(node);
  header.gpu = node.Member("gpu").Text();
  header.gpu_name = node.Member("gpu_name").Text();
  header.host = node.Member("host").Text();
  header.pid = node.Member("pid").Count(0, kMostProcess, "a process's number");
  const Node clocks = node.Member("sm_clocks_mhz");
  const std::size_t count = clocks.ListSize();
  for (std::size_t i = 0; i < count; ++i) {
    header.sm_clocks_mhz.push_back(clocks[i].Count(1, kHighestFrequencyMhz, "MHz"));
  }
  header.may_set_clocks = node.Member("may_set_clocks").Flag();
  header.epoch = node.Member("epoch_ns").Whole(-kFurthestEpoch, kFurthestEpoch, "nanoseconds");
  ReadPipeline(node, header);
  return header;
}

RankRecord ReadRecord(const Node& node) {
  if (node.value.is_object() && node.Has("step")) return ReadStep(node);
  if (node.value.is_object() && node.Has("remark")) {
    node.RequireObject({"remark"});
    return Remark{node.Member("remark").Text()};
  }
  return ReadHeader(node);
}

}  // namespace

Result<std::vector<int>> ParseStages(std::string_view text) {
  std::vector<int> stages;
  for (std::string_view rest = text; !text.empty();) {
    const std::size_t comma = rest.find(',');
    const auto stage = ParseNumber<int>(rest.substr(0, comma));
    if (!stage || *stage < 0 || *stage > kHighestRank) {
      return Fail(
          "stages is {}, but it is a list of the stages of the rank's chunks, such as \"0,7\"",
          Excerpt(text));
    }
    stages.push_back(*stage);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (!IsAscending(stages)) {
    return Fail("stages is {}, but chunks are numbered by ascending stage, such as \"0,7\"",
                Excerpt(text));
  }
  return stages;
}

bool IsOfSameProcess(const RankHeader& a, const RankHeader& b) {
  return a.pid == b.pid && a.epoch == b.epoch && a.host == b.host;
}

bool RanStep::LacksClocks() const {
  const auto has_clock = [](const RanInstruction& ran) { return ran.frequency_mhz > 0; };
  return has_plan && on_plan && !instructions.empty() &&
         std::none_of(instructions.begin(), instructions.end(), has_clock);
}

Nanoseconds RanStep::TimeOfWork() const {
  Nanoseconds time = 0;
  for (const RanInstruction& ran : instructions) time += ran.duration;
  for (const Wait& wait : waits) time -= wait.duration;
  return time;
}

bool RanStep::IsDisturbed() const {
  return is_limited && limited_by != std::vector<std::string>{"power"};
}

std::string FormatRecord(const RankRecord& record) { return std::visit(Formatter(), record); }

Result<RankRecord> ParseRecord(std::string_view line, Place where) {
  return json_file::Read(line, std::move(where), kMaxRecordDepth, ReadRecord);
}

std::filesystem::path RankLogPath(const std::filesystem::path& job_directory, const RankId& name) {
  return job_directory / kRanksFolder / (Name(name) + ".jsonl");
}

std::filesystem::path OlderRankLogPath(const std::filesystem::path& log) {
  return log.string() + ".1";
}

// ---- RankLogReader ----

// A log that is open, or that does not exist.
class RankLogReader::OpenFile {
 public:
  // Fails in the same cases as OpenJobFile.
  static Result<OpenFile> Open(std::filesystem::path path) {
    const std::filesystem::path ranks = path.parent_path();
    PERSEUS_ASSIGN_OR_RETURN(FileDescriptor file,
                             OpenJobFile(ranks.parent_path(), ranks.filename() / path.filename()));
    return OpenFile(std::move(path), std::move(file));
  }
  bool IsOpen() const { return static_cast<bool>(file_); }
  const Identity& identity() const { return identity_; }
  const std::filesystem::path& path() const { return path_; }

  // Returns at most `most` bytes from `offset` on. At the end of the file, returns fewer bytes.
  Result<std::string> ReadAt(std::uint64_t offset, std::size_t most) const {
    PERSEUS_ASSIGN_OR_RETURN(const std::uint64_t size, Size());
    std::string text(size > offset ? std::min<std::uint64_t>(size - offset, most) : 0, '\0');
    std::size_t filled = 0;
    while (filled < text.size()) {
      const ssize_t got = ::pread(file_.get(), text.data() + filled, text.size() - filled,
                                  static_cast<off_t>(offset + filled));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return CannotRead();
      if (got == 0) break;
      filled += static_cast<std::size_t>(got);
    }
    text.resize(filled);
    return text;
  }

  std::optional<bool> IsLocked() const { return IsLockedForWriting(file_.get()); }

  Result<std::uint64_t> Size() const {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) return CannotRead();
    return static_cast<std::uint64_t>(status.st_size);
  }

 private:
  OpenFile(std::filesystem::path path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {
    struct stat status {};
    if (!file_ || ::fstat(file_.get(), &status) != 0) return;
    identity_ = {static_cast<std::uint64_t>(status.st_dev),
                 static_cast<std::uint64_t>(status.st_ino)};
  }
  tl::unexpected<Error> CannotRead() const {
    return SystemFail(errno, "cannot be read", InFile(path_.string()));
  }

  std::filesystem::path path_;
  FileDescriptor file_;
  Identity identity_;
};

namespace {

// The largest number of bytes that one call reads. The next call continues. No valid line is as
// long as this.
constexpr std::size_t kMostBytes = 16U << 20U;
// The beginning of a log, which identifies the log. It contains most of the header.
constexpr std::size_t kHeadBytes = 256;
// The longest header, with all clocks of a GPU.
constexpr std::size_t kLongestHeader = 64U << 10U;

tl::unexpected<Error> TooLong(Place where) {
  return Fail(std::move(where),
              "the line is longer than {} bytes (remove the file: it is no rank log, or damaged)",
              kMostBytes);
}

}  // namespace

Result<std::map<RankId, std::filesystem::path>> FindRankFiles(
    const std::filesystem::path& job_directory, std::string_view ending) {
  PERSEUS_ASSIGN_OR_RETURN(const auto names, ListJobFolder(job_directory, kRanksFolder));
  std::map<RankId, std::filesystem::path> files;
  for (const std::string& name : names) {
    if (!name.ends_with(ending)) continue;
    const auto rank = ParseRankId(name.substr(0, name.size() - ending.size()));
    if (rank) files.emplace(*rank, job_directory / kRanksFolder / name);
  }
  return files;
}

Result<RankLogReader::Passed> RankLogReader::SkipToEnd() {
  Passed passed;
  PERSEUS_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path_));
  if (!file.IsOpen()) return passed;
  BeginWith(file);
  PERSEUS_ASSIGN_OR_RETURN(const std::string text, file.ReadAt(0, kMostBytes));
  bytes_read_ += text.size();
  head_ = text.substr(0, kHeadBytes);
  begins_.header = passed.header = HeaderOf(file);
  // The text at the beginning of a step in the format of FormatRecord. Parsing all steps would be
  // slow.
  constexpr std::string_view kStep = "\n{\"step\":";
  passed.has_steps = text.find(kStep) != std::string::npos;
  if (text.size() < kMostBytes) {
    line_ = std::count(text.begin(), text.end(), '\n');
    // An incomplete last line is read again with the new text.
    offset_ = text.rfind('\n') + 1;
    return passed;
  }
  PERSEUS_ASSIGN_OR_RETURN(const std::string last, GoToEnd(file));
  passed.has_steps = passed.has_steps || last.find(kStep) != std::string::npos;
  if (is_within_line_) return TooLong(Where(file));
  return passed;
}

// Skips the text between the header and the end. A file may have any size, because its holes take
// no space.
Result<std::string> RankLogReader::GoToEnd(const OpenFile& file) {
  PERSEUS_ASSIGN_OR_RETURN(const std::uint64_t size, file.Size());
  offset_ = size - std::min<std::uint64_t>(size, kMostBytes);
  line_ = -1;
  PERSEUS_ASSIGN_OR_RETURN(std::string text, file.ReadAt(offset_, kMostBytes));
  bytes_read_ += text.size();
  const std::size_t end = text.rfind('\n');
  is_within_line_ = end == std::string::npos;
  offset_ += is_within_line_ ? text.size() : end + 1;
  return text;
}

std::optional<RankHeader> RankLogReader::HeaderOf(const OpenFile& file) {
  const Result<std::string> text = file.IsOpen() ? file.ReadAt(0, kLongestHeader) : std::string();
  const std::size_t end = text ? text->find('\n') : std::string::npos;
  if (end == std::string::npos) return std::nullopt;
  const auto record =
      ParseRecord(std::string_view(*text).substr(0, end), InFile(file.path().string()));
  const auto* header = record ? std::get_if<RankHeader>(&*record) : nullptr;
  return header == nullptr ? std::nullopt : std::optional(*header);
}

void RankLogReader::BeginWith(const OpenFile& file) {
  read_ = file.identity();
  offset_ = 0;
  line_ = 0;
  is_within_line_ = false;
  head_.clear();
}

Result<std::vector<RankRecord>> RankLogReader::ReadNew() {
  PERSEUS_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path_));
  if (!file.IsOpen()) return std::vector<RankRecord>();
  if (read_ == file.identity()) return ReadNewOf(file);
  PERSEUS_ASSIGN_OR_RETURN(const OpenFile older, OpenFile::Open(OlderRankLogPath(path_)));
  if (!read_) {
    const auto header = HeaderOf(file);
    const auto header_before = HeaderOf(older);
    // The older log may be from an earlier process. In this case it does not belong to this log.
    const bool is_its = header && header_before && IsOfSameProcess(*header, *header_before);
    BeginWith(is_its ? older : file);
  }
  if (older.IsOpen() && read_ == older.identity()) {
    auto records = ReadNewOf(older);
    if (!records || !records->empty()) return records;
  }
  // The older log is read to its end, or it does not exist.
  if (read_ != file.identity()) BeginWith(file);
  return ReadNewOf(file);
}

std::optional<bool> RankLogReader::IsBeingWritten() const {
  const auto file = OpenFile::Open(path_);
  return file && file->IsOpen() ? file->IsLocked() : std::nullopt;
}

Place RankLogReader::Where(const OpenFile& file) const {
  const std::string path = file.path().string();
  return line_ < 0 ? InFile(fmt::format("{}, byte {}", path, offset_))
                   : InFile(path, static_cast<int>(line_ + 1));
}

Result<std::vector<RankRecord>> RankLogReader::ReadNewOf(const OpenFile& file) {
  PERSEUS_ASSIGN_OR_RETURN(const std::string head, file.ReadAt(0, kHeadBytes));
  // The header contains the process and the time, so the beginning of a new log is different.
  if (!head.starts_with(head_)) BeginWith(file);
  if (head_.size() < kHeadBytes) head_ = head;

  PERSEUS_ASSIGN_OR_RETURN(const std::string text, file.ReadAt(offset_, kMostBytes));
  bytes_read_ += text.size();
  std::vector<RankRecord> records;
  std::string_view rest = text;
  if (rest.size() == kMostBytes && rest.find('\n') == std::string_view::npos) {
    Place where = Where(file);
    const bool is_known = is_within_line_;
    PERSEUS_RETURN_IF_ERROR(GoToEnd(file));
    if (!is_known) return TooLong(std::move(where));
    return records;
  }
  // If the beginning of a line was skipped, its end is no record.
  if (const std::size_t end = rest.find('\n'); is_within_line_ && end != std::string_view::npos) {
    rest.remove_prefix(end + 1);
    offset_ += end + 1;
    is_within_line_ = false;
  }
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    Result<RankRecord> record = ParseRecord(rest.substr(0, end), Where(file));
    // The records before an invalid line are returned first. The next call fails, and skips the
    // line.
    if (!record && !records.empty()) break;
    rest.remove_prefix(end + 1);
    offset_ += end + 1;
    if (line_ >= 0) ++line_;
    if (!record) return Fail(record);
    begins_.Correct(*record);
    records.push_back(*std::move(record));
  }
  return records;
}
}  // namespace perseus::protocol
