#include "perseus/planning/report/frontier_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/number.h"
#include "perseus/planning/profile/csv_reader.h"

namespace perseus::report {
namespace {

struct Columns {
  std::optional<std::size_t> time;
  std::optional<std::size_t> energy;
  std::optional<std::size_t> price;
  std::optional<std::size_t> error;
  std::size_t count = 0;
};

Result<Columns> ReadHeader(const profile::CsvReader& reader) {
  Columns columns;
  const std::span<const std::string_view> fields = reader.fields();
  columns.count = fields.size();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] == "time") columns.time = i;
    if (fields[i] == "energy" || fields[i] == "energy_bound") columns.energy = i;
    if (fields[i] == "marginal_watts") columns.price = i;
    if (fields[i] == "energy_error") columns.error = i;
    if (fields[i] == "frequency") {
      return Fail(reader.Where(),
                  "is a profile, not a frontier (perseus plan ... -o DIR writes the frontier of a "
                  "profile)");
    }
  }
  if (!columns.time || !columns.energy) {
    return Fail(
        reader.Where(),
        "column \"{}\" is missing (a frontier has the columns time, in s, and energy, in J)",
        columns.time ? "energy" : "time");
  }
  return columns;
}

Result<double> ReadNumber(std::string_view field, std::string_view what, double least, double most,
                          const profile::CsvReader& reader) {
  const auto number = ParseNumber<double>(field);
  if (!number || !std::isfinite(*number)) {
    return Fail(reader.Where(), "{} {} is not a number (expected a number such as 2.82)", what,
                Excerpt(field));
  }
  if (*number < least || *number > most) {
    return Fail(reader.Where(), "{} {} is out of range (expected {} to {:g})", what, Excerpt(field),
                least == 0 ? "0" : "above 0,", most);
  }
  return *number;
}

Result<std::vector<plan::FrontierPoint>> ParseCsv(std::string_view text, std::string_view name) {
  profile::CsvReader reader(text, name);
  PERSEUS_ASSIGN_OR_RETURN(const auto has_header, reader.Next());
  if (!has_header) {
    return Fail(InFile(name),
                "is empty (expected the header time,energy and a row for each point)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto columns, ReadHeader(reader));
  constexpr double kLeast = 1e-9;
  std::vector<plan::FrontierPoint> points;
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const auto more, reader.Next());
    if (!more) break;
    if (reader.fields().size() != columns.count) {
      return Fail(reader.Where(),
                  "{} fields, but the header has {} (check that the file is complete)",
                  reader.fields().size(), columns.count);
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto time, ReadNumber(reader.fields()[*columns.time], "time",
                                                         kLeast, kLongestSeconds, reader));
    PERSEUS_ASSIGN_OR_RETURN(const auto energy, ReadNumber(reader.fields()[*columns.energy],
                                                           "energy", kLeast, kMostJoules, reader));
    plan::FrontierPoint point{.time = ToNanoseconds(time), .bound_j = energy};
    if (columns.price) {
      PERSEUS_ASSIGN_OR_RETURN(
          const auto price,
          ReadNumber(reader.fields()[*columns.price], "marginal_watts", 0, kMostJoules, reader));
      point.price_w = price;
    }
    if (columns.error) {
      PERSEUS_ASSIGN_OR_RETURN(
          const auto error,
          ReadNumber(reader.fields()[*columns.error], "energy_error", 0, kMostJoules, reader));
      point.error_j = error;
    }
    points.push_back(point);
  }
  return points;
}

}  // namespace

Result<FrontierCurve> ParseFrontier(std::string_view text, std::string_view name) {
  PERSEUS_ASSIGN_OR_RETURN(auto points, ParseCsv(text, name));
  if (points.empty()) return Fail(InFile(name), "has no points (check that the file is complete)");
  std::ranges::stable_sort(points, {}, &plan::FrontierPoint::time);
  double error = 0;
  for (const plan::FrontierPoint& point : points) {
    error = std::max(error, point.error_j / point.bound_j);
  }
  return FrontierCurve{std::string(name), std::move(points), error};
}

std::string FormatFrontier(const plan::Frontier& frontier) {
  std::string text = "time,energy_bound,marginal_watts,energy_error\n";
  for (const plan::FrontierPoint& point : frontier.points) {
    text += fmt::format("{:.9f},{},{},{}\n", ToSeconds(point.time), point.bound_j, point.price_w,
                        point.error_j);
  }
  return text;
}

}  // namespace perseus::report
