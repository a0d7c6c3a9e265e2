#include "perseus/cli/flags/flag_checks.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/number.h"
#include "perseus/base/system_cause.h"
#include "perseus/base/wording.h"

namespace perseus::cli {
namespace {

constexpr double kMostLikelyPercent = 200;
constexpr double kLeastLikelyPercent = 0.5;
// Straggler::slowdown is at most 100 times as long.
constexpr double kMostStragglerPercent = 9'900;
constexpr double kLeastLikelyStragglerPercent = 3;

std::optional<double> FiniteNumber(std::string_view text) {
  const auto number = ParseNumber<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

CLI::Validator Slowdown(double most_percent, double least_likely_percent) {
  auto check = [=](std::string& text) -> std::string {
    const char unit = text.empty() ? '\0' : text.back();
    const bool has_unit = unit == '%' || unit == 'x';
    std::string_view digits = std::string_view(text).substr(0, text.size() - (has_unit ? 1 : 0));
    if (has_unit && digits.ends_with(' ')) digits.remove_suffix(1);  // "25 %"
    const auto number = FiniteNumber(digits);
    // Rounded, because 100 * (1.1 - 1) is slightly above 10.
    constexpr double kDigits = 1e9;
    const double percent = !number       ? -1
                           : unit == 'x' ? std::round(100 * (*number - 1) * kDigits) / kDigits
                                         : *number;
    if (percent < 0 || percent > most_percent || std::fpclassify(percent) == FP_SUBNORMAL) {
      return fmt::format(
          "{} is not a number from 0 to {:g} (percent longer, such as 25 or 25%; or 1.25x, which "
          "is 1.25 times as long)",
          Excerpt(text), most_percent);
    }
    const bool is_likely =
        percent == 0 || (percent >= least_likely_percent && percent <= kMostLikelyPercent);
    if (!has_unit && !is_likely) {
      const std::string other = percent < 1                    ? fmt::format("{:g}%", 100 * percent)
                                : percent > kMostLikelyPercent ? fmt::format("{:g}x", percent / 100)
                                                               : fmt::format("{:g}x", percent);
      return fmt::format(
          "{0} means {0} percent longer, which is unlikely (give {0}% to mean this, or {1})", text,
          other);
    }
    text = fmt::format("{}", percent);
    return {};
  };
  return {std::move(check), ""};
}

}  // namespace

CLI::Validator NumberIn(const NumberRange& range) {
  auto check = [range](std::string& text) -> std::string {
    const std::optional<double> number = FiniteNumber(text);
    // CLI11 cannot convert such a number.
    if (number && std::fpclassify(*number) == FP_SUBNORMAL) {
      return fmt::format("{} is too small: write 0", Excerpt(text));
    }
    if (number && range.Holds(*number)) return {};
    std::string with_point = text;
    if (const auto comma = text.find(','); comma != text.npos) with_point[comma] = '.';
    if (!number && FiniteNumber(with_point)) {
      return fmt::format("{} has a comma (give one number, such as {})", Excerpt(text), with_point);
    }
    return fmt::format("{} is not a number from {} to {}{}", Excerpt(text), range.least, range.most,
                       range.unit.empty() ? "" : fmt::format(" ({})", range.unit));
  };
  return {std::move(check), ""};
}

CLI::Validator SlowdownUpTo(double most_percent) {
  return Slowdown(most_percent, kLeastLikelyPercent);
}

CLI::Validator StragglerSlowdown() {
  return Slowdown(kMostStragglerPercent, kLeastLikelyStragglerPercent);
}

CLI::Validator WholeNumberIn(const NumberRange& range) {
  auto check = [range](std::string& text) -> std::string {
    const std::optional<double> number = FiniteNumber(text);
    const bool is_plain = text.find_first_not_of("0123456789") == std::string::npos;
    if (number && is_plain && range.Holds(*number)) return {};
    return fmt::format("{} is not a whole number from {:.0f} to {:.0f}", Excerpt(text), range.least,
                       range.most);
  };
  return {std::move(check), ""};
}

CLI::Validator OneOf(std::vector<std::string> names) {
  std::string description = fmt::format("{{{}}}", fmt::join(names, ","));
  auto check = [names = std::move(names)](std::string& text) -> std::string {
    const std::string lower = CLI::detail::to_lower(text);
    for (const std::string& name : names) {
      if (CLI::detail::to_lower(name) != lower) continue;
      text = name;
      return {};
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    return fmt::format("{} is unknown ({})", Excerpt(text), DidYouMean(lower, known));
  };
  return {std::move(check), std::move(description)};
}

CLI::Validator InputFile() {
  auto check = [](std::string& path) -> std::string {
    if (path.empty()) return {};  // Another check refuses empty values.
    if (const auto checked = CheckInputFile(path); !checked)
      throw WrongPath(checked.error().Message());
    return {};
  };
  return {std::move(check), ""};
}

CLI::Validator ExistingPath() {
  auto check = [](std::string& path) -> std::string {
    struct stat status {};
    if (path.empty() || ::stat(path.c_str(), &status) == 0) return {};
    throw WrongPath(SystemError(errno, "cannot read", InFile(path)).Message());
  };
  return {std::move(check), ""};
}

Result<void> CheckReplacesNoInput(const std::string& output,
                                  const std::vector<std::string>& inputs) {
  std::error_code none;  // The ignored error of a file that does not exist.
  for (const std::string& input : inputs) {
    if (output.empty() || input.empty()) continue;
    if (!std::filesystem::equivalent(input, output, none)) continue;
    return Fail(InFile(output),
                "is a file to read, and is not overwritten (write into another file)");
  }
  return {};
}

CLI::Option* AddJobDirectory(const FlagAdder& add, std::string& directory) {
  return add("directory", directory, "JOBDIR", "The job's directory (its PERSEUS_JOB_DIR)",
             JobDirectory());
}

void AddLogLevel(const FlagAdder& add, std::string& level) {
  add("--log-level", level, "LEVEL", "debug, info, warn or error (default: info)",
      OneOf({"debug", "info", "warn", "error"}));
}

CLI::Validator JobDirectory() {
  auto check = [](std::string& path) -> std::string {
    struct stat status {};
    if (path.empty()) return {};
    constexpr const char* kRemedy = "name the one that the ranks have as PERSEUS_JOB_DIR";
    if (::stat(path.c_str(), &status) != 0) {
      throw WrongPath(fmt::format("{}: cannot read: {} ({})", path, std::strerror(errno), kRemedy));
    }
    if (!S_ISDIR(status.st_mode)) {
      throw WrongPath(fmt::format("{} is not a directory ({})", path, kRemedy));
    }
    return {};
  };
  return {std::move(check), ""};
}

}  // namespace perseus::cli
