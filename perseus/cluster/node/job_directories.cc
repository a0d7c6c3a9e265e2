#include "perseus/cluster/node/job_directories.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <system_error>

#include "perseus/base/file.h"
#include "perseus/base/json_file.h"

namespace perseus::node {
namespace {

constexpr int kJobDirectoriesJsonDepth = 2;
constexpr std::size_t kLongestKey = 1024;
// Any user of the node may write the file, so its size is limited.
constexpr std::uintmax_t kMostBytes = 64 << 10;

}  // namespace

Result<std::string> ParseServerJob(std::string_view text, std::string_view name) {
  return json_file::Read(text, name, kJobDirectoriesJsonDepth, [](const json_file::Node& file) {
    file.RequireObject({"job"});
    std::string job = file.Member("job").Text();
    if (job.empty() || job.size() > kLongestKey) {
      json_file::Throw("job is not the key of a job (expected 1 to {} bytes)", kLongestKey);
    }
    return job;
  });
}

JobDirectories FindJobDirectories(const std::filesystem::path& parent) {
  JobDirectories found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::filesystem::path path = entry.path() / "server.json";
    if (!std::filesystem::is_regular_file(path, error)) continue;
    if (std::filesystem::file_size(path, error) > kMostBytes || error) {
      found.troubles.push_back(path.string() +
                               ": is too long for {\"job\": KEY} (write only the key of the job)");
      continue;
    }
    const auto text = ReadFile(path);
    const auto job = text ? ParseServerJob(*text, path.string()) : Result<std::string>(Fail(text));
    if (job) {
      found.jobs.emplace(entry.path(), *job);
    } else {
      found.troubles.push_back(job.error().message);
    }
  }
  return found;
}

}  // namespace perseus::node
