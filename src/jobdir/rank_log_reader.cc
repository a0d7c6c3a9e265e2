#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "perseus/jobdir/rank_log.h"

namespace perseus {
namespace {

// As much as one call reads; more waits for the next.
constexpr std::size_t kMostBytes = 16U << 20U;
// By which a log is known again: enough for most of a header.
constexpr std::size_t kHeadBytes = 256;

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  tl::unexpected<Error> CannotRead() const {
    return FailAs(ErrorKind::kSystem, "{}: cannot be read: {}", path_.string(),
                  std::strerror(errno));
  }

 private:
  const std::filesystem::path& path_;
  int fd_;
};

// At most as many bytes from there on; fewer at the end of the file.
Result<std::string> ReadAt(const OpenFile& file, std::uint64_t offset, std::size_t most) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return file.CannotRead();
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::string text(size > offset ? std::min<std::uint64_t>(size - offset, most) : 0, '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::pread(file.get(), text.data() + filled, text.size() - filled,
                                static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file.CannotRead();
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace

Result<RankLogReader::Passed> RankLogReader::SkipToEnd() {
  Passed passed;
  const OpenFile file(path_);
  if (file.get() < 0) {
    if (errno == ENOENT) return passed;
    return file.CannotRead();
  }
  std::uint64_t read = 0;
  for (;;) {
    const Result<std::string> text = ReadAt(file, read, kMostBytes);
    if (!text) return Fail(text);
    if (text->empty()) break;
    if (read == 0) {
      head_ = text->substr(0, kHeadBytes);
      const std::string_view first = std::string_view(*text).substr(0, text->find('\n'));
      if (const auto record = ParseRecord(first, path_.string())) {
        if (const auto* header = std::get_if<RankHeader>(&*record)) passed.header = *header;
      }
    }
    // As FormatRecord begins it; parsing what may be a gigabyte takes long.
    passed.has_steps = passed.has_steps || text->find("\n{\"step\":") != std::string::npos;
    line_ += std::count(text->begin(), text->end(), '\n');
    // A line that is not whole yet comes with what is new.
    if (const auto end = text->rfind('\n'); end != std::string::npos) offset_ = read + end + 1;
    read += text->size();
  }
  return passed;
}

Result<std::vector<RankRecord>> RankLogReader::ReadNew() {
  const OpenFile file(path_);
  if (file.get() < 0) {
    if (errno == ENOENT) return std::vector<RankRecord>();
    return file.CannotRead();
  }
  const Result<std::string> head = ReadAt(file, 0, kHeadBytes);
  if (!head) return Fail(head);
  // The header names process and time, so a log that began anew begins differently.
  if (!head->starts_with(head_)) {
    offset_ = 0;
    line_ = 0;
    head_.clear();
  }
  if (head_.size() < kHeadBytes) head_ = *head;

  const Result<std::string> text = ReadAt(file, offset_, kMostBytes);
  if (!text) return Fail(text);
  std::vector<RankRecord> records;
  std::string_view rest = *text;
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    Result<RankRecord> record =
        ParseRecord(rest.substr(0, end), fmt::format("{}:{}", path_.string(), line_ + 1));
    // What came before a wrong line is returned first; the next call fails, and passes it.
    if (!record && !records.empty()) break;
    rest.remove_prefix(end + 1);
    offset_ += end + 1;
    ++line_;
    if (!record) return Fail(record);
    records.push_back(*std::move(record));
  }
  return records;
}

}  // namespace perseus
