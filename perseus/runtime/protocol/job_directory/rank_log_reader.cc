#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/system_cause.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::protocol {

// A log that is open, or that does not exist.
class RankLogReader::OpenFile {
 public:
  // Fails as OpenJobFile does.
  static Result<OpenFile> Open(std::filesystem::path path) {
    PERSEUS_ASSIGN_OR_RETURN(FileDescriptor file, OpenJobFile(path));
    return OpenFile(std::move(path), std::move(file));
  }
  bool IsOpen() const { return static_cast<bool>(file_); }
  const Identity& identity() const { return identity_; }
  const std::filesystem::path& path() const { return path_; }

  // At most `most` bytes from `offset` on. Fewer at the end of the file.
  Result<std::string> ReadAt(std::uint64_t offset, std::size_t most) const;
  Result<std::uint64_t> Size() const;

 private:
  OpenFile(std::filesystem::path path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {
    struct stat status {};
    if (!file_ || ::fstat(file_.get(), &status) != 0) return;
    identity_ = {static_cast<std::uint64_t>(status.st_dev),
                 static_cast<std::uint64_t>(status.st_ino)};
  }
  tl::unexpected<Error> CannotRead() const {
    return FailAs(ErrorKind::kSystem, "{}: cannot be read: {}", path_.string(),
                  CauseAndRemedy(errno));
  }

  std::filesystem::path path_;
  FileDescriptor file_;
  Identity identity_;
};

namespace {

// Read by one call. The next call continues. No line is as long as that.
constexpr std::size_t kMostBytes = 16U << 20U;
// The begin of a log, which identifies it. It contains most of the header.
constexpr std::size_t kHeadBytes = 256;
// With all clocks of a GPU.
constexpr std::size_t kLongestHeader = 64U << 10U;

tl::unexpected<Error> TooLong(std::string_view where) {
  return Fail(
      "{}: the line is longer than {} bytes (remove the file: it is no rank log, or damaged)",
      where, kMostBytes);
}

}  // namespace

Result<std::map<RankId, std::filesystem::path>> FindRankFiles(
    const std::filesystem::path& job_directory, std::string_view ending) {
  const std::filesystem::path ranks = job_directory / "ranks";
  std::map<RankId, std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(ranks, error))) {
    return FailAs(ErrorKind::kFile, "{}: is a symbolic link (put a directory in its place)",
                  ranks.string());
  }
  for (std::filesystem::directory_iterator file(ranks, error), end; !error && file != end;
       file.increment(error)) {
    const std::string name = file->path().filename();
    if (!name.ends_with(ending)) continue;
    const auto rank = ParseRankId(name.substr(0, name.size() - ending.size()));
    if (rank) files.emplace(*rank, file->path());
  }
  return files;
}

Result<std::uint64_t> RankLogReader::OpenFile::Size() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return CannotRead();
  return static_cast<std::uint64_t>(status.st_size);
}

Result<std::string> RankLogReader::OpenFile::ReadAt(std::uint64_t offset, std::size_t most) const {
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

Result<RankLogReader::Passed> RankLogReader::SkipToEnd() {
  Passed passed;
  PERSEUS_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path_));
  if (!file.IsOpen()) return passed;
  BeginWith(file);
  PERSEUS_ASSIGN_OR_RETURN(const std::string text, file.ReadAt(0, kMostBytes));
  head_ = text.substr(0, kHeadBytes);
  passed.header = HeaderOf(file);
  // The begin of a step in the format of FormatRecord. To parse all of them would take long.
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

// The text between is not read, because a file may have any size: its holes take no space.
Result<std::string> RankLogReader::GoToEnd(const OpenFile& file) {
  PERSEUS_ASSIGN_OR_RETURN(const std::uint64_t size, file.Size());
  offset_ = size - std::min<std::uint64_t>(size, kMostBytes);
  line_ = -1;
  PERSEUS_ASSIGN_OR_RETURN(std::string text, file.ReadAt(offset_, kMostBytes));
  const std::size_t end = text.rfind('\n');
  is_within_line_ = end == std::string::npos;
  offset_ += is_within_line_ ? text.size() : end + 1;
  return text;
}

std::optional<RankHeader> RankLogReader::HeaderOf(const OpenFile& file) {
  const Result<std::string> text = file.IsOpen() ? file.ReadAt(0, kLongestHeader) : std::string();
  const std::size_t end = text ? text->find('\n') : std::string::npos;
  if (end == std::string::npos) return std::nullopt;
  const auto record = ParseRecord(std::string_view(*text).substr(0, end), file.path().string());
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
    // A log of an earlier process does not belong to this one.
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

std::string RankLogReader::Where(const OpenFile& file) const {
  return line_ < 0 ? fmt::format("{}, byte {}", file.path().string(), offset_)
                   : fmt::format("{}:{}", file.path().string(), line_ + 1);
}

Result<std::vector<RankRecord>> RankLogReader::ReadNewOf(const OpenFile& file) {
  PERSEUS_ASSIGN_OR_RETURN(const std::string head, file.ReadAt(0, kHeadBytes));
  // The header contains the process and the time, so a new log begins differently.
  if (!head.starts_with(head_)) BeginWith(file);
  if (head_.size() < kHeadBytes) head_ = head;

  PERSEUS_ASSIGN_OR_RETURN(const std::string text, file.ReadAt(offset_, kMostBytes));
  std::vector<RankRecord> records;
  std::string_view rest = text;
  if (rest.size() == kMostBytes && rest.find('\n') == std::string_view::npos) {
    const std::string where = Where(file);
    const bool is_known = is_within_line_;
    PERSEUS_RETURN_IF_ERROR(GoToEnd(file));
    if (!is_known) return TooLong(where);
    return records;
  }
  // The end of a line whose begin was skipped is no record.
  if (const std::size_t end = rest.find('\n'); is_within_line_ && end != std::string_view::npos) {
    rest.remove_prefix(end + 1);
    offset_ += end + 1;
    is_within_line_ = false;
  }
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    Result<RankRecord> record = ParseRecord(rest.substr(0, end), Where(file));
    // The records before an invalid line are returned first. The next call fails and skips the
    // line.
    if (!record && !records.empty()) break;
    rest.remove_prefix(end + 1);
    offset_ += end + 1;
    if (line_ >= 0) ++line_;
    if (!record) return Fail(record);
    records.push_back(*std::move(record));
  }
  return records;
}

}  // namespace perseus::protocol
