#include "results.h"

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
// Whatever is planned; names of the others depend on that.
constexpr std::string_view kAlwaysWritten[] = {"frontier.csv", "trace.json", "report.html"};

// Whether a run writes files of that name. The list may have been edited, and must not make us
// remove anything else.
bool IsResultName(std::string_view name) {
  if (std::ranges::find(kAlwaysWritten, name) != std::end(kAlwaysWritten)) return true;
  const bool is_plan = name.starts_with("plans/") && name.ends_with(".json");
  const bool is_list = name.starts_with("freqs_pipeline_") && name.ends_with(".py");
  return (is_plan || is_list) && std::count(name.begin(), name.end(), '/') == (is_plan ? 1 : 0);
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

// The files that a summary lists; none if there is no summary.
Result<std::vector<std::string>> ListedFiles(const fs::path& summary_path) {
  std::error_code error;
  std::vector<std::string> names;
  if (!fs::exists(summary_path, error)) return names;
  const auto text = ReadFile(summary_path);
  if (!text) return Fail(text);
  const auto summary = nlohmann::json::parse(*text, nullptr, false);
  if (!summary.is_object() || summary.value("format", nlohmann::json()) != "perseus-summary") {
    return Fail("{}: was not written by perseus plan (name another directory with -o)",
                summary_path.string());
  }
  for (const auto& file : summary.value("files", nlohmann::json::array())) {
    if (!file.is_string() || !IsResultName(file.get_ref<const std::string&>())) continue;
    names.push_back(file.get<std::string>());
  }
  return names;
}

// Takes back what a run has staged, and what it has moved to its place already: that is listed in
// the staged summary, and no longer beside it.
Result<void> Unstage(const fs::path& directory) {
  const fs::path staging = directory / kStagingName;
  std::error_code error;
  const auto listed = ListedFiles(staging / kSummaryName);
  if (!listed) return Fail(listed);
  for (const std::string& name : *listed) {
    if (fs::exists(staging / name, error)) continue;
    if (auto removed = Remove(directory / name); !removed) return removed;
  }
  if (auto removed = Remove(staging / kSummaryName); !removed) return removed;
  fs::remove_all(staging, error);
  if (error) return SystemFailure(staging, "remove the results of an earlier run", error);
  return {};
}

Result<void> RefuseToReplace(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  return Fail(
      "{}: is in the way and was not written by an earlier run of perseus plan (move it away, or "
      "name another directory with -o)",
      path.string());
}

}  // namespace

ResultDirectory::ResultDirectory(fs::path path) : path_(std::move(path)) {}

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
  const auto listed = ListedFiles(path_ / kSummaryName);
  if (!listed) return Fail(listed);
  if (auto unstaged = Unstage(path_); !unstaged) return unstaged;
  for (const std::string& name : *listed) {
    if (auto removed = Remove(path_ / name); !removed) return removed;
  }
  if (auto removed = Remove(path_ / kSummaryName); !removed) return removed;
  fs::create_directory(path_ / kStagingName, error);
  if (error) return SystemFailure(path_, "write to the directory", error);
  is_open_ = true;
  for (const std::string_view name : kAlwaysWritten) {
    if (auto free = RefuseToReplace(path_ / name); !free) return free;
  }
  return {};
}

Result<void> ResultDirectory::Stage(const std::vector<ResultFile>& files) {
  // Before a staged summary says that what has these names is ours.
  for (const ResultFile& file : files) {
    if (auto free = RefuseToReplace(path_ / file.name); !free) return free;
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
