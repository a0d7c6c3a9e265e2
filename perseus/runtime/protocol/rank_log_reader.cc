#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/system_cause.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::protocol {

class RankLogReader::OpenFile {
 public:
  explicit OpenFile(std::filesystem::path path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (!file_ || ::fstat(file_.get(), &status) != 0) return;
    identity_ = {static_cast<std::uint64_t>(status.st_dev),
                 static_cast<std::uint64_t>(status.st_ino)};
  }
  bool IsOpen() const { return static_cast<bool>(file_); }
  const Identity& identity() const { return identity_; }
  const std::filesystem::path& path() const { return path_; }

  // At most `most` bytes from `offset` on. Fewer at the end of the file.
  Result<std::string> ReadAt(std::uint64_t offset, std::size_t most) const;
  tl::unexpected<Error> CannotRead() const {
    return FailAs(ErrorKind::kSystem, "{}: cannot be read: {}", path_.string(),
                  CauseAndRemedy(errno));
  }

 private:
  const std::filesystem::path path_;
  const FileDescriptor file_;
  Identity identity_;
};

namespace {

// Read by one call. The next call continues.
constexpr std::size_t kMostBytes = 16U << 20U;
// The begin of a log, which identifies it. It contains most of the header.
constexpr std::size_t kHeadBytes = 256;
// With all clocks of a GPU.
constexpr std::size_t kLongestHeader = 64U << 10U;

}  // namespace

Result<std::string> RankLogReader::OpenFile::ReadAt(std::uint64_t offset, std::size_t most) const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return CannotRead();
  const auto size = static_cast<std::uint64_t>(status.st_size);
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
  const OpenFile file(path_);
  if (!file.IsOpen()) {
    if (errno == ENOENT) return passed;
    return file.CannotRead();
  }
  BeginWith(file);
  std::uint64_t read = 0;
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const std::string text, file.ReadAt(read, kMostBytes));
    if (text.empty()) break;
    if (read == 0) {
      head_ = text.substr(0, kHeadBytes);
      const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
      if (const auto record = ParseRecord(first, path_.string())) {
        if (const auto* header = std::get_if<RankHeader>(&*record)) passed.header = *header;
      }
    }
    // The begin of a step in the format of FormatRecord. To parse a gigabyte would take long.
    passed.has_steps = passed.has_steps || text.find("\n{\"step\":") != std::string::npos;
    line_ += std::count(text.begin(), text.end(), '\n');
    // An incomplete last line is read again with the new text.
    if (const auto end = text.rfind('\n'); end != std::string::npos) offset_ = read + end + 1;
    read += text.size();
  }
  return passed;
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
  head_.clear();
}

Result<std::vector<RankRecord>> RankLogReader::ReadNew() {
  const OpenFile file(path_);
  if (!file.IsOpen()) {
    if (errno == ENOENT) return std::vector<RankRecord>();
    return file.CannotRead();
  }
  if (read_ == file.identity()) return ReadNewOf(file);
  const OpenFile older(OlderRankLogPath(path_));
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

Result<std::vector<RankRecord>> RankLogReader::ReadNewOf(const OpenFile& file) {
  PERSEUS_ASSIGN_OR_RETURN(const std::string head, file.ReadAt(0, kHeadBytes));
  // The header contains the process and the time, so a new log begins differently.
  if (!head.starts_with(head_)) BeginWith(file);
  if (head_.size() < kHeadBytes) head_ = head;

  PERSEUS_ASSIGN_OR_RETURN(const std::string text, file.ReadAt(offset_, kMostBytes));
  std::vector<RankRecord> records;
  std::string_view rest = text;
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    Result<RankRecord> record =
        ParseRecord(rest.substr(0, end), fmt::format("{}:{}", file.path().string(), line_ + 1));
    // The records before an invalid line are returned first. The next call fails and skips the
    // line.
    if (!record && !records.empty()) break;
    rest.remove_prefix(end + 1);
    offset_ += end + 1;
    ++line_;
    if (!record) return Fail(record);
    records.push_back(*std::move(record));
  }
  return records;
}

}  // namespace perseus::protocol
