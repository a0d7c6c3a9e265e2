#include "perseus/planning/job/profile_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "perseus/base/file.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/csv_reader.h"

namespace perseus::job {
namespace {

// The line of the profile at which the options of a set begin, or that of one option. Nothing if
// the profile is not a file that can be read again.
std::optional<std::int64_t> LineOf(const LoadedJob& job, const schedule::OptionSet& set,
                                   const profile::Option* option) {
  const std::string& path = job.planned.profile;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const auto text = ReadFile(path);
  if (!text) return std::nullopt;
  profile::CsvReader reader(*text, path);
  std::vector<std::string> header;
  if (const auto has_header = reader.Next(); !has_header || !*has_header) return std::nullopt;
  for (const std::string_view name : reader.fields()) header.emplace_back(name);
  const auto field = [&](std::string_view name) -> std::string_view {
    const auto place = std::ranges::find(header, name);
    if (place == header.end()) return {};
    return reader.fields()[static_cast<std::size_t>(place - header.begin())];
  };
  // Some tools write all numbers as floating point: stage 3 is then 3.0.
  const auto is = [](std::string_view number, double expected) {
    double value = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
    return parsed.ec == std::errc() && value == expected;
  };
  const auto is_option = [&] {
    if (option == nullptr) return true;
    const auto& names = job.graph.other_knob_names;
    for (std::size_t knob = 0; knob < names.size(); ++knob) {
      if (!is(field(names[knob]), option->other_knobs[knob])) return false;
    }
    return is(field("frequency"), option->frequency_mhz);
  };
  for (auto has_row = reader.Next(); has_row && *has_row; has_row = reader.Next()) {
    if (reader.fields().size() != header.size()) return std::nullopt;
    const std::string_view stage = field("stage");
    if (!is(stage.empty() ? field("pp_rank") : stage, set.pp_rank)) continue;
    const std::string_view chunk = field("chunk");
    if (!chunk.empty() && !is(chunk, set.chunk)) continue;
    if (ParseInstructionKind(field("instruction")) != set.kind) continue;
    if (is_option()) return reader.line();
  }
  return std::nullopt;
}

}  // namespace

Computations ComputationsOf(const LoadedJob& job) {
  Computations computations;
  for (const schedule::OptionSet& set : job.graph.option_sets) {
    if (IsComputation(set.kind)) computations.push_back(&set);
  }
  return computations;
}

const profile::Option& BaselineOf(const schedule::OptionSet& set) {
  return set.options[static_cast<std::size_t>(set.baseline)];
}

double PowerW(const profile::Option& option, int gpus) {
  return option.energy_j / ToSeconds(option.time) / gpus;
}

std::string Place(const LoadedJob& job, const schedule::OptionSet& set,
                  const profile::Option* option) {
  const auto line = LineOf(job, set, option);
  return line ? fmt::format("{}:{}: {}", job.planned.profile, *line, set.name)
              : fmt::format("{}: {}", job.planned.profile, set.name);
}

}  // namespace perseus::job
