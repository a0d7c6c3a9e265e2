#include "perseus/client/rank_log_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace perseus {
namespace {

tl::unexpected<Error> CannotWrite(const std::filesystem::path& path, std::string_view why) {
  return FailAs(ErrorKind::kSystem,
                "cannot write {}: {} (steps are not recorded; check PERSEUS_JOB_DIR)",
                path.string(), why);
}

}  // namespace

Result<RankLogWriter> RankLogWriter::Create(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return CannotWrite(path, error.message());
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return CannotWrite(path, std::strerror(errno));
  // A file system without locks is taken as it is.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Fail(
        "another process records as {} ({}); steps are not recorded (set pipeline, rank and "
        "tensor_rank so that each process has its own)",
        path.stem().string(), path.string());
  }
  if (::ftruncate(file.get(), 0) != 0) return CannotWrite(path, std::strerror(errno));
  return RankLogWriter(std::move(file), path);
}

Result<void> RankLogWriter::Append(std::string_view lines) {
  std::string closed;
  if (is_line_open_) {
    closed = "\n";
    closed += lines;
    lines = closed;
  }
  while (!lines.empty()) {
    const ssize_t written = ::write(file_.get(), lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return CannotWrite(path_, std::strerror(errno));
    lines.remove_prefix(static_cast<std::size_t>(written));
    size_ += static_cast<std::uint64_t>(written);
    is_line_open_ = !lines.empty();
  }
  return {};
}

}  // namespace perseus
