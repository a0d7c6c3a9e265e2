#include "perseus/runtime/client/rank_log_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::client {
namespace {

tl::unexpected<Error> CannotWrite(const std::filesystem::path& path, std::string_view why) {
  return FailAs(ErrorKind::kSystem,
                "cannot write {}: {} (steps are not recorded; check PERSEUS_JOB_DIR)",
                path.string(), why);
}

std::optional<EndedLog> IdentityOf(int file, std::uint64_t pipeline) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return std::nullopt;
  return EndedLog{.device = status.st_dev,
                  .number = status.st_ino,
                  .size = static_cast<std::uint64_t>(status.st_size),
                  .pipeline = pipeline};
}

tl::unexpected<Error> IsNotRecorded(const Error& cause) {
  return FailAs(ErrorKind::kSystem, "{}; steps are not recorded; check PERSEUS_JOB_DIR",
                cause.Message());
}

// Locks the log. Returns whether another process has the lock. A file system without locks is
// accepted. A reader that looks for the lock (RankLogReader) has it for a moment, so the lock is
// tried again.
bool IsLocked(int log) {
  constexpr int kTries = 5;
  constexpr useconds_t kPauseUs = 2'000;
  for (int tries = 1; ::flock(log, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK) return false;
    if (tries == kTries) return true;
    ::usleep(kPauseUs);
  }
  return false;
}

}  // namespace

Result<RankLogWriter> RankLogWriter::Create(const std::filesystem::path& path, LiveSession& live,
                                            std::uint64_t pipeline) {
  const std::filesystem::path directory = path.parent_path();
  auto folder = protocol::OwnFolder::Open(directory.parent_path(), directory.filename());
  if (!folder) return IsNotRecorded(folder.error());
  auto opened = folder->OpenFile(path.filename());
  if (!opened) return IsNotRecorded(opened.error());
  // The file is listed before it is locked. Otherwise, a forked child would keep a copy of it, and
  // with it the lock.
  ListedDescriptor file(*std::move(opened), live.log);
  if (IsLocked(file.get())) {
    return Fail(
        "another process records as {} ({}); steps are not recorded (set dp_rank, pp_rank "
        "and tp_rank so that each process has its own numbers)",
        path.stem().string(), path.string());
  }
  const auto identity = IdentityOf(file.get(), pipeline);
  const auto ended = identity ? FindEndedLog(*identity) : std::nullopt;
  if (!ended) {
    if (::ftruncate(file.get(), 0) != 0) return CannotWrite(path, std::strerror(errno));
    const auto removed = folder->Remove(protocol::OlderRankLogPath(path).filename());
    if (!removed) return IsNotRecorded(removed.error());
  }
  RankLogWriter writer(*std::move(folder), std::move(file), path, live, pipeline);
  writer.size_ = ended ? ended->size : 0;
  writer.continued_ = ended;
  return writer;
}

void RankLogWriter::Remember(std::int64_t next_step, Nanoseconds epoch) const {
  auto log = IdentityOf(file_.get(), pipeline_);
  if (!log || is_line_open_ || IsDeleted()) return;
  log->next_step = next_step;
  log->epoch = epoch;
  RememberEndedLog(*log);
}

Result<void> RankLogWriter::Append(std::string_view lines) {
  std::string closed;
  if (is_line_open_) {
    closed = "\n";
    closed += lines;
    lines = closed;
  }
  const std::size_t written = WriteBytes(file_.get(), lines);
  const bool is_whole = written == lines.size();
  size_ += written;
  if (written > 0) is_line_open_ = !is_whole;
  if (!is_whole) return CannotWrite(path_, std::strerror(errno));
  return {};
}

bool RankLogWriter::IsDeleted() const {
  struct stat status {};
  return ::fstat(file_.get(), &status) == 0 && status.st_nlink == 0;
}

Result<void> RankLogWriter::BeginAnew(std::string_view lines) {
  const std::string name = path_.filename();
  const std::string next = name + ".new";
  const std::string older = protocol::OlderRankLogPath(name);
  auto file = folder_.CreateFile(next);
  if (!file) return IsNotRecorded(file.error());
  // Locks the file before another process can find it.
  static_cast<void>(::flock(file->get(), LOCK_EX | LOCK_NB));
  if (WriteBytes(file->get(), lines) < lines.size()) {
    return CannotWrite(path_, std::strerror(errno));
  }
  if (const auto moved = folder_.Rename(name, older); !moved) return IsNotRecorded(moved.error());
  if (const auto moved = folder_.Rename(next, name); !moved) {
    static_cast<void>(folder_.Rename(older, name));
    return IsNotRecorded(moved.error());
  }
  file_ = ListedDescriptor(*std::move(file), live_->log);
  size_ = lines.size();
  is_line_open_ = false;
  return {};
}

}  // namespace perseus::client
