#include "perseus/tuner/tuner_state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "perseus/base/file.h"
#include "perseus/base/json_file.h"

namespace perseus {
namespace {

using nlohmann::ordered_json;

std::filesystem::path PathIn(const std::filesystem::path& job_directory) {
  return job_directory / "tuner.json";
}

// The measurements are of instructions; which there are and where is what has to be the same.
std::string NameOf(const Schedule& schedule) {
  return fmt::format("{} of {} stages and {} microbatches", schedule.name, schedule.stages(),
                     schedule.microbatches);
}

}  // namespace

Result<TunerState> ReadTunerState(const std::filesystem::path& job_directory,
                                  const PlannedJob& job) {
  TunerState state;
  state.job = NameOf(job.schedule);
  state.measurements = Measurements({.switch_latency = job.switch_latency});
  const std::filesystem::path path = PathIn(job_directory);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return state;
  const auto text = ReadFile(path);
  if (!text) return Fail(text);
  constexpr int kDeepest = 10;
  std::string measurements;
  const auto read =
      json_file::Read(*text, path.string(), kDeepest, [&](const json_file::Node& file) {
        TunerState from_file;
        constexpr std::string_view kKeys[] = {"perseus_tuner", "job",     "rounds",
                                              "steps",         "seconds", "measurements"};
        file.RequireObject(kKeys);
        (void)file.Member("perseus_tuner").Count(1, 1, "version");
        from_file.job = file.Member("job").Text();
        from_file.rounds = file.Member("rounds").Count(0, 1'000'000'000, "rounds");
        from_file.spent.steps = file.Member("steps").Count(0, 1'000'000'000, "steps");
        from_file.spent.seconds = file.Member("seconds").Number(0, 1e12, "s");
        measurements = file.Member("measurements").value.dump();
        return from_file;
      });
  if (!read) return Fail(read);
  if (read->job != state.job) {
    return Fail(
        "{}: holds measurements of {}, and this job is {} (remove it, or take another job "
        "directory)",
        path.string(), read->job, state.job);
  }
  state = *read;
  auto parsed = Measurements::Parse(measurements, path.string() + ": measurements");
  if (!parsed) return Fail(parsed);
  state.measurements = *std::move(parsed);
  return state;
}

Result<void> WriteTunerState(const std::filesystem::path& job_directory, const TunerState& state) {
  const ordered_json json{{"perseus_tuner", 1},
                          {"job", state.job},
                          {"rounds", state.rounds},
                          {"steps", state.spent.steps},
                          {"seconds", state.spent.seconds},
                          {"measurements", ordered_json::parse(state.measurements.Format())}};
  return WriteFileAtomically(PathIn(job_directory), json.dump() + "\n");
}

}  // namespace perseus
