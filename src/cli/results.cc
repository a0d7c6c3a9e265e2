#include "results.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "perseus/base/file.h"

namespace perseus::cli {
namespace {

// Whether a run writes files of that name. The list may have been edited, and must not make us
// remove anything else.
bool IsResultName(std::string_view name) {
  if (name == "frontier.csv" || name == "trace.json") return true;
  const bool is_plan = name.starts_with("plans/") && name.ends_with(".json");
  const bool is_list = name.starts_with("freqs_pipeline_") && name.ends_with(".py");
  return (is_plan || is_list) && std::count(name.begin(), name.end(), '/') == (is_plan ? 1 : 0);
}

}  // namespace

Result<void> RemoveResults(const std::filesystem::path& directory) {
  const std::filesystem::path summary_path = directory / kSummaryName;
  std::error_code error;
  if (!std::filesystem::exists(summary_path, error)) return {};
  const auto text = ReadFile(summary_path);
  if (!text) return Fail(text);
  const auto summary = nlohmann::json::parse(*text, nullptr, false);
  if (!summary.is_object() || summary.value("format", nlohmann::json()) != "perseus-summary") {
    return Fail("{}: was not written by perseus plan (name another directory with -o)",
                summary_path.string());
  }
  for (const auto& file : summary.value("files", nlohmann::json::array())) {
    if (!file.is_string() || !IsResultName(file.get_ref<const std::string&>())) continue;
    std::filesystem::remove(directory / file.get<std::string>(), error);
  }
  if (!std::filesystem::remove(summary_path, error)) {
    return FailAs(ErrorKind::kSystem, "{}: cannot remove the results of an earlier run: {}",
                  summary_path.string(), error.message());
  }
  return {};
}

Result<void> WriteResults(const std::filesystem::path& directory,
                          const std::vector<ResultFile>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto written = WriteFileAtomically(directory / files[i].name, files[i].contents);
    if (written) continue;
    std::error_code ignored;
    for (std::size_t j = 0; j < i; ++j) std::filesystem::remove(directory / files[j].name, ignored);
    return written;
  }
  return {};
}

}  // namespace perseus::cli
