#include "perseus/simulation/emulator/event_file.h"

#include <toml++/toml.h>

#include <array>
#include <optional>
#include <utility>

#include "perseus/base/limits.h"
#include "perseus/base/toml_file.h"
#include "perseus/base/units.h"

namespace perseus::emulator {
namespace {

using toml_file::TableReader;

constexpr int kMostIterations = 100'000'000;
constexpr double kMostSlowdown = 1'000;
constexpr double kHighestCapW = 1e12;

class EventReader {
 public:
  EventReader(const toml::table& root, std::string_view name)
      : root_(root), name_(name), file_(root, name) {}

  Result<Events> Read() {
    static constexpr std::string_view kKinds[] = {"straggler", "plan", "power_cap"};
    TableReader reader(root_, name_, "the event file", kKinds);
    file_.Keep(reader);
    file_.ReadTables("straggler", [this](const toml::table& table) { ReadStraggler(table); });
    file_.ReadTables("plan", [this](const toml::table& table) { ReadPlan(table); });
    file_.ReadTables("power_cap", [this](const toml::table& table) { ReadPowerCap(table); });
    if (file_.error()) return tl::unexpected<Error>(*file_.error());
    return events_;
  }

 private:
  // Reads an iteration, or a time in seconds.
  static Moment ReadMoment(TableReader& reader, std::string_view iteration_key,
                           std::string_view time_key, Moment otherwise) {
    if (!reader.Has(time_key)) {
      return {reader.CountFrom(iteration_key, 0, kMostIterations, otherwise.iteration)};
    }
    if (reader.Has(iteration_key)) {
      reader.FailAt(time_key, "{} and {} are both given (keep one)", iteration_key, time_key);
    }
    return {0, ToNanoseconds(reader.Number(time_key, kLongestSeconds, 0))};
  }

  // Reads the moment at which an event arrives.
  static Moment ReadArrival(TableReader& reader) {
    Moment moment = ReadMoment(reader, "from", "from_s", 0);
    moment.after += ToNanoseconds(reader.Number("delay_s", kLongestSeconds, 0));
    return moment;
  }

  // A moment in iterations and a moment in seconds cannot be compared before the job has run. This
  // function only checks what is certain: the end is not before the beginning in both.
  static void CheckOrder(TableReader& reader, std::string_view title, const Moment& from,
                         const Moment& until) {
    if (until.iteration > from.iteration || until.after > from.after) return;
    reader.FailHere("{} ends before it begins (until has to be above from)", title);
  }

  std::string WhereOf(const toml::table& table) const {
    return fmt::format("{}:{}", name_, table.source().begin.line);
  }

  void ReadStraggler(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {
        "dp_rank",  "pp_rank",           "from",         "from_s", "until", "until_s",
        "slowdown", "max_frequency_mhz", "input_delay_s"};
    TableReader reader(table, name_, "[[straggler]]", kKeys);
    Disturbance disturbance{.where = WhereOf(table)};
    if (!reader.Has("dp_rank")) reader.FailHere("[[straggler]] has no dp_rank (add dp_rank = 0)");
    disturbance.dp_rank = reader.CountFrom("dp_rank", 0, kMostPipelines, 0);
    disturbance.pp_rank = reader.CountFrom("pp_rank", 0, kMostPpRanks, -1);
    disturbance.from = ReadMoment(reader, "from", "from_s", disturbance.from);
    disturbance.until = ReadMoment(reader, "until", "until_s", disturbance.until);
    CheckOrder(reader, "[[straggler]]", disturbance.from, disturbance.until);
    struct Way {
      std::string_view key;
      Disturbance::Kind kind;
      double most;
      double least;
    };
    static constexpr std::array<Way, 3> kWays{{
        {"slowdown", Disturbance::Kind::kSlow, kMostSlowdown, 1},
        {"max_frequency_mhz", Disturbance::Kind::kThrottle, kHighestFrequencyMhz, 1},
        {"input_delay_s", Disturbance::Kind::kInput, kLongestSeconds, 0},
    }};
    int ways = 0;
    for (const Way& way : kWays) {
      if (!reader.Has(way.key)) continue;
      ++ways;
      disturbance.kind = way.kind;
      disturbance.value = reader.Number(way.key, way.most, 1);
      if (disturbance.value < way.least) {
        reader.FailAt(way.key, "{} is below {} (write at least {})", way.key, way.least, way.least);
      }
    }
    if (ways != 1) {
      reader.FailHere(
          "[[straggler]] has to be slow in exactly one way (write slowdown = 1.2, or "
          "max_frequency_mhz = 1050, or input_delay_s = 0.4)");
    }
    events_.disturbances.push_back(disturbance);
    file_.Keep(reader);
  }

  void ReadPlan(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"from", "from_s", "delay_s", "file"};
    TableReader reader(table, name_, "[[plan]]", kKeys);
    if (!reader.Has("file")) reader.FailHere("[[plan]] has no file (write file = \"plan.json\")");
    events_.plans.push_back({ReadArrival(reader), reader.Text("file"), WhereOf(table)});
    file_.Keep(reader);
  }

  void ReadPowerCap(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"from",    "from_s",  "until",
                                                 "until_s", "delay_s", "watts"};
    TableReader reader(table, name_, "[[power_cap]]", kKeys);
    if (!reader.Has("watts")) reader.FailHere("[[power_cap]] has no watts (write watts = 180000)");
    PowerCap cap{.from = ReadArrival(reader), .where = WhereOf(table)};
    cap.until = ReadMoment(reader, "until", "until_s", cap.until);
    cap.watts = reader.Number("watts", kHighestCapW, 0);
    CheckOrder(reader, "[[power_cap]]", cap.from, cap.until);
    events_.power_caps.push_back(std::move(cap));
    file_.Keep(reader);
  }

  const toml::table& root_;
  std::string_view name_;
  Events events_;
  toml_file::FileReader file_;
};

}  // namespace

Result<Events> ParseEvents(std::string_view text, std::string_view name) {
  PERSEUS_ASSIGN_OR_RETURN(const auto root, toml_file::Parse(text, name));
  return EventReader(root, name).Read();
}

}  // namespace perseus::emulator
