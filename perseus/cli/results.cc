#include "perseus/cli/results.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStagingName = ".perseus-run";

bool IsPlanOrList(std::string_view name) {
  const bool is_plan = name.starts_with("plans/") && name.ends_with(".json");
  const bool is_list = name.starts_with("freqs_pipeline_") && name.ends_with(".py");
  return (is_plan || is_list) && std::count(name.begin(), name.end(), '/') == (is_plan ? 1 : 0);
}

bool IsNone(std::string_view /*name*/) { return false; }

// Whether a run writes files with that name. A user may have edited the list in a summary, and a
// run must not remove other files because of it.
bool IsResultName(const ResultKind& kind, std::string_view name) {
  if (name.empty() || name == kind.summary) return false;
  return std::ranges::find(kind.always, name) != std::end(kind.always) || kind.is_other(name);
}

tl::unexpected<Error> SystemFailure(const fs::path& path, std::string_view what,
                                    const std::error_code& error) {
  return FailAs(ErrorKind::kSystem, "{}: cannot {}: {}", path.string(), what, error.message());
}

Result<void> Remove(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) return SystemFailure(path, "remove the results of an earlier run", error);
  return {};
}

// The files that a summary lists. Empty if no summary exists.
Result<std::vector<std::string>> ListedFiles(const fs::path& directory, const ResultKind& kind) {
  const fs::path summary_path = directory / kind.summary;
  std::error_code error;
  std::vector<std::string> names;
  if (!fs::exists(summary_path, error)) return names;
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(summary_path));
  const auto summary = nlohmann::json::parse(text, nullptr, false);
  if (!summary.is_object() || summary.value("format", nlohmann::json()) != kind.format) {
    return Fail("{}: was not written by {} (use another directory with -o)", summary_path.string(),
                kind.verb);
  }
  for (const auto& file : summary.value("files", nlohmann::json::array())) {
    if (!file.is_string() || !IsResultName(kind, file.get_ref<const std::string&>())) continue;
    names.push_back(file.get<std::string>());
  }
  return names;
}

// Removes the staged files of a run, and the files that it has already moved to their places. Those
// are in the list of the staged summary, but no longer next to it. The run may be one of the other
// verb.
Result<void> Unstage(const fs::path& directory) {
  const fs::path staging = directory / kStagingName;
  std::error_code error;
  for (const ResultKind* kind : {&kPlanResults, &kEmulationResults}) {
    PERSEUS_ASSIGN_OR_RETURN(const auto listed, ListedFiles(staging, *kind));
    for (const std::string& name : listed) {
      if (fs::exists(staging / name, error)) continue;
      if (auto removed = Remove(directory / name); !removed) return removed;
    }
    if (auto removed = Remove(staging / kind->summary); !removed) return removed;
  }
  fs::remove_all(staging, error);
  if (error) return SystemFailure(staging, "remove the results of an earlier run", error);
  return {};
}

Result<void> RefuseToReplace(const fs::path& path, const ResultKind& kind) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  return Fail(
      "{}: already exists and was not written by an earlier run of {} (move it, or use another "
      "directory with -o)",
      path.string(), kind.verb);
}

}  // namespace

const ResultKind kPlanResults{"perseus plan",
                              "summary.json",
                              "perseus-summary",
                              {"frontier.csv", "trace.json", "report.html"},
                              IsPlanOrList};
const ResultKind kEmulationResults{"perseus emulate",
                                   "emulation.json",
                                   "perseus-emulation",
                                   {"iterations.csv", "pp_ranks.csv", "trace.json"},
                                   IsNone};

ResultDirectory::ResultDirectory(fs::path path, const ResultKind& kind)
    : path_(std::move(path)), kind_(kind) {}

ResultDirectory::~ResultDirectory() {
  if (!is_open_) return;
  std::error_code ignored;
  if (!Unstage(path_)) return;  // The next run will try again.
  if (is_new_) fs::remove(path_, ignored);
}

Result<void> ResultDirectory::Open() {
  std::error_code error;
  is_new_ = fs::create_directories(path_, error);
  if (error) return SystemFailure(path_, "make the directory", error);
  PERSEUS_ASSIGN_OR_RETURN(const auto listed, ListedFiles(path_, kind_));
  if (auto unstaged = Unstage(path_); !unstaged) return unstaged;
  for (const std::string& name : listed) {
    if (auto removed = Remove(path_ / name); !removed) return removed;
  }
  if (auto removed = Remove(path_ / kind_.summary); !removed) return removed;
  fs::create_directory(path_ / kStagingName, error);
  if (error) return SystemFailure(path_, "write to the directory", error);
  is_open_ = true;
  for (const std::string_view name : kind_.always) {
    if (name.empty()) continue;
    if (auto free = RefuseToReplace(path_ / name, kind_); !free) return free;
  }
  return {};
}

Result<void> ResultDirectory::Stage(const std::vector<ResultFile>& files) {
  // This check comes before the summary is staged, because a staged summary declares all files with
  // these names as ours.
  for (const ResultFile& file : files) {
    if (auto free = RefuseToReplace(path_ / file.name, kind_); !free) return free;
  }
  for (const ResultFile& file : files) {
    auto written = WriteFileAtomically(path_ / kStagingName / file.name, file.contents);
    if (!written) return written;
    staged_.push_back(file.name);
  }
  return {};
}

Result<void> ResultDirectory::Publish() {
  for (const std::string& name : staged_) {
    const fs::path place = path_ / name;
    std::error_code error;
    fs::create_directories(place.parent_path(), error);
    if (!error) fs::rename(path_ / kStagingName / name, place, error);
    if (error) return SystemFailure(place, "write", error);
  }
  is_new_ = false;
  return {};
}

}  // namespace perseus::cli
