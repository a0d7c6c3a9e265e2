// Appends whole lines to a rank log, so that a killed process leaves at most one incomplete line. A
// log that is too long becomes the older part of the log (rank_log.h). Other users may be able to
// write into the job directory, so it never follows a link there (protocol::OwnFolder).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/runtime/client/live_sessions.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::client {

class RankLogWriter {
 public:
  // Makes the file JOBDIR/FOLDER/NAME, and its directories, again, and holds it against others
  // until it is closed; the older part of a log that was there is deleted. Fails (kInput) if
  // another process has it, and (kSystem) if another user could make it write elsewhere. `live`
  // lists the file, and has to outlive the writer.
  static Result<RankLogWriter> Create(const std::filesystem::path& path, LiveSession& live);

  // Fails (kSystem) if the file system does not take it; the next call tries again, on a line of
  // its own.
  Result<void> Append(std::string_view lines);

  // What was written becomes the log's older part, in place of what that was, and the log begins
  // with these lines. Fails (kSystem) if the file system does not do it; then nothing has changed.
  Result<void> BeginAnew(std::string_view lines);

  // Whether no directory has the file any more, so that nobody will read it.
  bool IsDeleted() const;

  // Bytes that were written since it began.
  std::uint64_t size() const { return size_; }

 private:
  RankLogWriter(protocol::OwnFolder folder, ListedDescriptor file, std::filesystem::path path,
                LiveSession& live)
      : folder_(std::move(folder)), file_(std::move(file)), path_(std::move(path)), live_(&live) {}
  // A forked child may keep its copy, because it shares neither a lock nor a position.
  protocol::OwnFolder folder_;
  ListedDescriptor file_;
  std::filesystem::path path_;
  LiveSession* live_;
  std::uint64_t size_ = 0;
  bool is_line_open_ = false;  // The last write ended within a line.
};

}  // namespace perseus::client
