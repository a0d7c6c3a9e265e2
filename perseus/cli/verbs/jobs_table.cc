#include "perseus/cli/verbs/jobs_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cluster/job_planning/job_spec.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

std::string Number(const ordered_json& json, const char* key, const char* format) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return "";
  return fmt::format(fmt::runtime(format), found->get<double>());
}

std::string StatusText(const ordered_json& job) {
  const std::string status = job.at("status");
  const int lost = job.value("lost_nodes", 0);
  if (lost == 0) return status;
  return fmt::format("{}, {} lost", status, Counted(lost, "node"));
}

// The energy of a step of all pipelines. Empty if the energy of any pipeline is unknown.
std::string MeasuredEnergy(const ordered_json& job) {
  const auto measured = job.find("measured");
  if (measured == job.end()) return "";
  double energy_j = 0;
  for (const auto& [pipeline, of_pipeline] : measured->at("pipelines").items()) {
    if (!of_pipeline.contains("energy_j")) return "";
    energy_j += of_pipeline["energy_j"].get<double>();
  }
  return energy_j == 0 ? "" : FormatQuantity(energy_j);
}

double NumberOr(const ordered_json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || !found->is_number() ? kNoNumber : found->get<double>();
}

const ordered_json& MeasuredOf(const ordered_json& job) {
  static const ordered_json kNothing = ordered_json::object();
  const auto measured = job.find("measured");
  return measured == job.end() ? kNothing : *measured;
}

const ordered_json& JobPromise(const ordered_json& job) {
  static const ordered_json kNothing = ordered_json::object();
  const auto promise = MeasuredOf(job).find("promise");
  return promise == MeasuredOf(job).end() ? kNothing : *promise;
}

// Measured against promised, in percent.
double PromiseGap(const ordered_json& job, const char* promised, const char* measured) {
  return 100 * (NumberOr(JobPromise(job), measured) / NumberOr(JobPromise(job), promised) - 1);
}

std::string PercentText(double percent) {
  return std::isfinite(percent) ? fmt::format("{:+.1f} %", percent) : "";
}

// A column sorts by its number, or by its text if it has none.
struct Column {
  const char* name;
  const char* header;
  std::string (*text)(const ordered_json& job);
  double (*number)(const ordered_json& job) = nullptr;
};

constexpr Column kJobColumns[] = {
    {"job", "job", [](const ordered_json& job) { return job.at("key").get<std::string>(); }},
    {"status", "status", StatusText},
    {"gpus", "dp x pp x tp",
     [](const ordered_json& job) {
       return fmt::format("{} x {} x {}", job.at("pipelines").get<int>(),
                          job.at("pp_ranks").get<int>(), job.at("tensor_parallel").get<int>());
     },
     [](const ordered_json& job) {
       return NumberOr(job, "pipelines") * NumberOr(job, "pp_ranks") *
              NumberOr(job, "tensor_parallel");
     }},
    {"target", "target", [](const ordered_json& job) { return TargetText(job.at("target")); }},
    {"step", "step",
     [](const ordered_json& job) {
       return job.at("last_step").get<std::int64_t>() < 0 ? "" : Number(job, "last_step", "{:.0f}");
     },
     [](const ordered_json& job) { return NumberOr(job, "last_step"); }},
    {"time", "step (s)",
     [](const ordered_json& job) { return Number(MeasuredOf(job), "step_s", "{:.4g}"); },
     [](const ordered_json& job) { return NumberOr(MeasuredOf(job), "step_s"); }},
    {"energy", "energy (J)", MeasuredEnergy,
     [](const ordered_json& job) {
       const std::string text = MeasuredEnergy(job);
       return text.empty() ? kNoNumber : std::stod(text);
     }},
    {"saving", "planned saving",
     [](const ordered_json& job) { return Number(job, "saving_percent", "{:.2f} %"); },
     [](const ordered_json& job) { return NumberOr(job, "saving_percent"); }},
    {"slower", "slower than promised",
     [](const ordered_json& job) {
       return PercentText(PromiseGap(job, "promised_s", "measured_s"));
     },
     [](const ordered_json& job) { return PromiseGap(job, "promised_s", "measured_s"); }},
    {"hungrier", "more energy than promised",
     [](const ordered_json& job) {
       return PercentText(PromiseGap(job, "promised_j", "measured_j"));
     },
     [](const ordered_json& job) { return PromiseGap(job, "promised_j", "measured_j"); }},
    {"lost", "lost nodes",
     [](const ordered_json& job) { return std::to_string(job.value("lost_nodes", 0)); },
     [](const ordered_json& job) { return static_cast<double>(job.value("lost_nodes", 0)); }},
    {"gpu", "GPU", [](const ordered_json& job) { return job.value("gpu", ""); }},
    {"created", "created", [](const ordered_json& job) { return job.value("created", ""); }},
};
constexpr const char* kUsualColumns[] = {"job",  "status", "gpus",   "target",
                                         "step", "time",   "energy", "saving"};

const Column* FindColumn(std::string_view name) {
  const auto* found = std::ranges::find(
      kJobColumns, name, [](const Column& column) { return std::string_view(column.name); });
  return found == std::end(kJobColumns) ? nullptr : found;
}

std::string ColumnNames() {
  std::string names;
  for (const Column& column : kJobColumns) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", column.name);
  }
  return names;
}

std::string_view SortColumn(const JobsView& view) {
  std::string_view name = view.sort;
  if (name.starts_with('-')) name.remove_prefix(1);
  return name;
}

// Rows without a number come last.
void SortJobs(std::vector<ordered_json>& jobs, const JobsView& view) {
  if (view.sort.empty()) return;
  const Column& column = *FindColumn(SortColumn(view));
  const bool is_down = view.sort.starts_with('-');
  std::ranges::stable_sort(jobs, [&](const ordered_json& left, const ordered_json& right) {
    if (column.number == nullptr) {
      const std::string a = column.text(left);
      const std::string b = column.text(right);
      return is_down ? b < a : a < b;
    }
    const double a = column.number(left);
    const double b = column.number(right);
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
    return is_down ? b < a : a < b;
  });
}

}  // namespace

std::string TargetText(const ordered_json& target) {
  const auto known = job_planning::ParseTarget(target.dump(), 1);
  // A newer server may have other targets.
  return known ? Describe(*known) : target.at("kind").get<std::string>();
}

Result<ordered_json> FetchJobs(ServerClient& server, bool ended_too) {
  auto jobs = ordered_json::array();
  std::string after;
  do {
    auto page = server.Get(fmt::format("/v1/jobs?limit=500{}{}", ended_too ? "&all=1" : "",
                                       after.empty() ? "" : "&after=" + after));
    if (!page) return page;
    for (auto& job : page->at("jobs")) jobs.push_back(std::move(job));
    std::string next = page->value("next", "");
    // No server of ours does this; the loop would not end.
    if (next == after && !next.empty()) {
      return FailAs(ErrorKind::kSystem,
                    "the server's list of jobs does not end: it sends the page after {} again "
                    "(upgrade the server)",
                    Excerpt(next));
    }
    after = std::move(next);
  } while (!after.empty());
  return jobs;
}

void AddJobsViewFlags(CLI::App& verb, JobsView& view) {
  verb.add_option("--filter", view.filter, "Only jobs whose key contains this text")
      ->type_name("TEXT");
  verb.add_option("--status", view.status, "Only jobs with this status")
      ->transform(OneOf({"waiting", "planned", "failed", "ended"}))
      ->type_name("STATUS");
  verb.add_option("--sort", view.sort,
                  "Sort by this column; -COLUMN sorts downwards (default: by age)")
      ->type_name("COLUMN");
  verb.add_option("--columns", view.columns, "Columns to show, of: " + ColumnNames())
      ->delimiter(',')
      ->type_name("COLUMN[,COLUMN…]");
  verb.add_option("--limit", view.limit, "Rows of a page (default: all)")
      ->check(WholeNumberIn({1, 1'000'000}))
      ->type_name("N");
  verb.add_option("--page", view.page, "Which page to show (default: 1)")
      ->check(WholeNumberIn({1, 1'000'000}))
      ->type_name("N");
}

Result<void> CheckJobsView(const JobsView& view) {
  std::vector<std::string> names = view.columns;
  if (!view.sort.empty()) names.emplace_back(SortColumn(view));
  for (const std::string& name : names) {
    if (FindColumn(name) == nullptr) {
      return Fail("there is no column {} (choose from {})", Excerpt(name), ColumnNames());
    }
  }
  if (view.page > 1 && view.limit == 0) return Fail("--page needs --limit (the rows of a page)");
  return {};
}

ordered_json SelectJobs(const ordered_json& jobs, const JobsView& view) {
  std::vector<ordered_json> selected;
  for (const ordered_json& job : jobs) {
    const bool has_text = job.at("key").get<std::string>().find(view.filter) != std::string::npos;
    if (has_text && (view.status.empty() || job.at("status") == view.status)) {
      selected.push_back(job);
    }
  }
  SortJobs(selected, view);
  auto page = ordered_json::array();
  const std::size_t rows = view.limit == 0 ? selected.size() : static_cast<std::size_t>(view.limit);
  const std::size_t first = rows * static_cast<std::size_t>(view.page - 1);
  for (std::size_t i = first; i < selected.size() && i < first + rows; ++i) {
    page.push_back(std::move(selected[i]));
  }
  return page;
}

std::string FormatJobs(const ordered_json& jobs, const JobsView& view) {
  std::vector<std::string> names = view.columns;
  if (names.empty()) names.assign(std::begin(kUsualColumns), std::end(kUsualColumns));
  std::vector<std::string> headers;
  for (const std::string& name : names) headers.emplace_back(FindColumn(name)->header);
  Table table(std::move(headers));
  for (const ordered_json& job : jobs) {
    std::vector<std::string> cells;
    for (const std::string& name : names) cells.push_back(FindColumn(name)->text(job));
    table.AddRow(std::move(cells));
  }
  return jobs.empty() ? "no jobs\n" : table.Format();
}

}  // namespace perseus::cli
