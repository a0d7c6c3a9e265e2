#include "perseus/cluster/node/job_directories.h"

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <system_error>

#include "perseus/base/json_file.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::node {
namespace {

constexpr const char* kServerFile = "server.json";
constexpr std::size_t kLongestKey = 200;
// Any user of the node may write the file, so its size is limited.
constexpr std::uintmax_t kMostBytes = 64 << 10;

// Returns the key in {"job": KEY}. The key must have the form of keys on the server. An id is not a
// key: with the id, a second directory would look like that of another job.
Result<std::string> KeyOf(std::string_view text) {
  return json_file::Read(text, "server.json", 2, [](const json_file::Node& file) {
    file.RequireObject({"job"});
    std::string job = file.Member("job").Text();
    const bool fits = !job.empty() && job.size() <= kLongestKey &&
                      job.find_first_not_of(
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789._-") == std::string::npos &&
                      !job.starts_with("j-");
    if (!fits) json_file::Throw("job is not a key (FindJobDirectories says more)");
    return job;
  });
}

}  // namespace

JobDirectories FindJobDirectories(const std::filesystem::path& parent) {
  JobDirectories found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::filesystem::path path = entry.path() / kServerFile;
    const auto status = std::filesystem::symlink_status(path, error);
    if (!std::filesystem::is_regular_file(status) && !std::filesystem::is_symlink(status)) continue;
    const auto text = protocol::ReadJobFile(entry.path(), kServerFile, kMostBytes);
    if (!text) {
      found.troubles.emplace(entry.path(), text.error().Message());
      continue;
    }
    if (const auto job = KeyOf(*text)) {
      found.jobs.emplace(entry.path(), *job);
      continue;
    }
    // The message quotes nothing from the file, because any user of the node may have written it.
    found.troubles.emplace(
        entry.path(),
        fmt::format(
            "{}: is not {{\"job\": KEY}} (expected the key of a job: 1 to {} letters, digits, "
            "'.', '_' and '-')",
            path.string(), kLongestKey));
  }
  return found;
}

}  // namespace perseus::node
