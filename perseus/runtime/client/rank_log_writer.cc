#include "perseus/runtime/client/rank_log_writer.h"

#include <fcntl.h>
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
  protocol::WriteLock lock = protocol::LockForWriting(file.get());
  const auto identity = IdentityOf(file.get(), pipeline);
  const auto ended = identity ? FindEndedLog(*identity) : std::nullopt;
  const bool is_replaced = lock == protocol::WriteLock::kOfAnyUser;
  if (is_replaced) {
    const std::string name = path.filename();
    const auto moved = folder->Rename(name, protocol::OlderRankLogPath(name));
    if (!moved) return IsNotRecorded(moved.error());
    opened = folder->CreateFile(name, 0600);
    if (!opened) return IsNotRecorded(opened.error());
    file = ListedDescriptor(*std::move(opened), live.log);
    lock = protocol::LockForWriting(file.get());
  }
  if (lock != protocol::WriteLock::kTaken) {
    return Fail(
        "another process records as {} ({}); steps are not recorded (set dp_rank, pp_rank "
        "and tp_rank so that each process has its own numbers)",
        path.stem().string(), path.string());
  }
  if (!ended) {
    if (::ftruncate(file.get(), 0) != 0) return CannotWrite(path, std::strerror(errno));
    const auto removed = folder->Remove(protocol::OlderRankLogPath(path).filename());
    if (!removed) return IsNotRecorded(removed.error());
  }
  protocol::PublishLocked(file.get());
  RankLogWriter writer(*std::move(folder), std::move(file), path, live, pipeline);
  writer.size_ = ended && !is_replaced ? ended->size : 0;
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
  auto file = folder_.CreateFile(next, 0600);
  if (!file) return IsNotRecorded(file.error());
  static_cast<void>(protocol::LockForWriting(file->get()));
  protocol::PublishLocked(file->get());
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
