#include "perseus/base/process_state.h"

#include <charconv>
#include <csignal>
#include <string>

#include "perseus/base/file.h"

namespace perseus {
namespace {

// Fields of /proc/PID/stat.
constexpr int kFlags = 9;
constexpr int kStartTime = 22;
constexpr std::uint64_t kIsExiting = 4;  // PF_EXITING, of the flags.

// `fields` begin at field 3, after the name.
std::optional<std::uint64_t> NumberIn(std::string_view fields, int wanted) {
  for (int field = 3; field < wanted; ++field) {
    const std::size_t space = fields.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    fields.remove_prefix(space + 1);
  }
  std::uint64_t number = 0;
  const char* end = fields.data() + fields.size();
  const auto [rest, error] = std::from_chars(fields.data(), end, number);
  const bool is_whole = rest == end || *rest == ' ' || *rest == '\n';
  return error == std::errc() && is_whole ? std::optional(number) : std::nullopt;
}

// `key`: "SigPnd" (of the first thread) or "ShdPnd" (of the whole process).
bool HasPendingKill(std::string_view status, std::string_view key) {
  const std::size_t at = status.find("\n" + std::string(key) + ":");
  if (at == std::string_view::npos) return false;
  const std::size_t digits = status.find_first_not_of("\t ", at + key.size() + 2);
  if (digits == std::string_view::npos) return false;
  std::uint64_t pending = 0;
  std::from_chars(status.data() + digits, status.data() + status.size(), pending, 16);
  return (pending >> (SIGKILL - 1) & 1) != 0;
}

}  // namespace

std::optional<ProcessState> ParseProcessState(std::string_view stat, std::string_view status) {
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return std::nullopt;
  const std::string_view fields = stat.substr(name_end + 2);
  const auto started = NumberIn(fields, kStartTime);
  if (!started) return std::nullopt;
  // The first thread may have ended (Z) while another one cannot.
  const char state = stat[name_end + 2];
  return ProcessState{.started = *started,
                      .is_ending = state == 'Z' || state == 'X' ||
                                   (NumberIn(fields, kFlags).value_or(0) & kIsExiting) != 0 ||
                                   HasPendingKill(status, "SigPnd") ||
                                   HasPendingKill(status, "ShdPnd")};
}

std::optional<ProcessState> ReadProcessState(pid_t process, const std::filesystem::path& root) {
  const std::filesystem::path directory = root / "proc" / std::to_string(process);
  const auto stat = ReadFile(directory / "stat");
  if (!stat) return std::nullopt;
  const auto status = ReadFile(directory / "status");
  return ParseProcessState(*stat, status ? *status : std::string());
}

}  // namespace perseus
