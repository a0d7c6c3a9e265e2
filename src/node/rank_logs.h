// For tests: logs as ranks write them.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/jobdir/rank_log.h"

namespace perseus {

class RankLogs {
 public:
  static constexpr Nanoseconds kStepTime = 1'000'000'000;

  explicit RankLogs(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {
    std::filesystem::create_directories(job_directory_ / "ranks");
  }

  static RankHeader Header(const RankName& name, int pid) {
    RankHeader header;
    header.name = name;
    header.gpu = "GPU-" + Name(name);
    header.pid = pid;
    header.epoch = 1'700'000'000'000'000'000;
    return header;
  }
  // A rank's process begins, and its log with it.
  void Begin(const RankName& name, int pid) const {
    std::ofstream(RankLogPath(job_directory_, name), std::ios::trunc)
        << FormatRecord(Header(name, pid));
  }
  // It ends a step under orders of that version.
  void End(const RankName& name, std::int64_t number, std::int64_t version) const {
    RanStep step;
    step.step = number;
    step.version = version;
    step.on_plan = true;
    step.begin = (number + 10) * kStepTime;
    step.end = step.begin + kStepTime;
    step.instructions = {{InstructionKind::kForward, 0, 0, 0, kStepTime / 2, 1410}};
    Append(name, step);
  }
  void Append(const RankName& name, const RankRecord& record) const {
    Text(Name(name) + ".jsonl", FormatRecord(record));
  }
  void Text(const std::string& file, std::string_view text) const {
    std::ofstream(job_directory_ / "ranks" / file, std::ios::app) << text;
  }

 private:
  std::filesystem::path job_directory_;
};

}  // namespace perseus
