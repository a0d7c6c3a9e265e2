// Appends whole lines to a rank log, so that a killed process leaves at most one incomplete line.
// When the log file is too long, it is renamed to NAME.jsonl.1 (the older part), and a new file
// begins (rank_log.h). If an earlier session of this process wrote the log, the writer continues it
// (ended_logs.h). Other users may be able to write into the job directory, so it never follows
// a link there (protocol::OwnFolder).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/runtime/client/ended_logs.h"
#include "perseus/runtime/client/live_sessions.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::client {

class RankLogWriter {
 public:
  // Creates the file JOBDIR/FOLDER/NAME and its directories, and locks the file until it is closed.
  // Deletes both parts of an earlier log, unless a session of this process wrote it for the same
  // `pipeline` (a hash). If a reader has locked the file, begins a new one. Fails with kInput if
  // another process writes the log, and with kSystem if another user could redirect the writes.
  // `live` lists the file, and has to outlive the writer.
  static Result<RankLogWriter> Create(const std::filesystem::path& path, LiveSession& live,
                                      std::uint64_t pipeline);

  // The log that this writer continues. None: the log is new.
  const std::optional<EndedLog>& continued() const { return continued_; }
  // Lets a later session of this process continue the log. Call it after the last Append.
  void Remember(std::int64_t next_step, Nanoseconds epoch) const;

  // Fails (kSystem) if the file system does not write all of it. The next call then begins on a new
  // line.
  Result<void> Append(std::string_view lines);

  // Begins a new log with these lines. The log so far becomes the older part, in place of the
  // previous older part. Fails (kSystem) if the file system fails. Then nothing has changed.
  Result<void> BeginAnew(std::string_view lines);

  // Whether the file was deleted, so that nobody can read it.
  bool IsDeleted() const;

  // Bytes that were written since the log began.
  std::uint64_t size() const { return size_; }

 private:
  RankLogWriter(protocol::OwnFolder folder, ListedDescriptor file, std::filesystem::path path,
                LiveSession& live, std::uint64_t pipeline)
      : folder_(std::move(folder)),
        file_(std::move(file)),
        path_(std::move(path)),
        live_(&live),
        pipeline_(pipeline) {}
  // May stay open in a forked child: the descriptor has no lock and no file position to share.
  protocol::OwnFolder folder_;
  ListedDescriptor file_;
  std::filesystem::path path_;
  LiveSession* live_;
  std::uint64_t pipeline_;
  std::optional<EndedLog> continued_;
  std::uint64_t size_ = 0;
  bool is_line_open_ = false;  // The last write ended within a line.
};

}  // namespace perseus::client
