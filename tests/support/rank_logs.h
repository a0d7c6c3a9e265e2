// For tests: writes logs as ranks do.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/file_descriptor.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::node {

class RankLogs {
 public:
  static constexpr Nanoseconds kStepTime = 1'000'000'000;

  explicit RankLogs(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {
    std::filesystem::create_directories(job_directory_ / "ranks");
  }

  static protocol::RankHeader Header(const protocol::RankId& name, int pid) {
    protocol::RankHeader header;
    header.name = name;
    header.gpu = "GPU-" + Name(name);
    header.pid = pid;
    header.epoch = 1'700'000'000'000'000'000;
    return header;
  }
  // Starts the log of a rank, as the rank's process does at its start.
  void Begin(const protocol::RankId& name, int pid) const {
    std::ofstream(protocol::RankLogPath(job_directory_, name), std::ios::trunc)
        << protocol::FormatRecord(Header(name, pid));
  }
  // Records that the rank ended a step under the assignment of this version.
  void End(const protocol::RankId& name, std::int64_t number, std::int64_t version) const {
    protocol::RanStep step;
    step.step = number;
    step.assignment_version = version;
    step.on_plan = true;
    step.begin = (number + 10) * kStepTime;
    step.end = step.begin + kStepTime;
    step.instructions = {{InstructionKind::kForward, 0, 0, 0, kStepTime / 2, 1410}};
    Append(name, step);
  }
  // Locks the log of a rank as its process does. The process ends when the descriptor is closed.
  FileDescriptor Lock(const protocol::RankId& name) const {
    const std::filesystem::path path = protocol::RankLogPath(job_directory_, name);
    std::filesystem::permissions(path, std::filesystem::perms(0644));
    FileDescriptor log(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (protocol::LockForWriting(log.get()) != protocol::WriteLock::kTaken) {
      throw std::runtime_error("the log is locked");
    }
    return log;
  }
  void Append(const protocol::RankId& name, const protocol::RankRecord& record) const {
    Text(Name(name) + ".jsonl", protocol::FormatRecord(record));
  }
  // Records that the rank closed its session.
  void Close(const protocol::RankId& name) const {
    Append(name, protocol::Remark{std::string(protocol::Remark::kEnd)});
  }
  void Text(const std::string& file, std::string_view text) const {
    std::ofstream(job_directory_ / "ranks" / file, std::ios::app) << text;
  }

 private:
  std::filesystem::path job_directory_;
};

}  // namespace perseus::node
