// Profiles, measurements row by row, and the clocks to measure next.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/units.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/job_planning/planning.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/job_view.h"
#include "perseus/runtime/profiler/sweep.h"

namespace perseus::server {
namespace {

using json_file::Node;
using json_file::ThrowAt;
using nlohmann::ordered_json;

constexpr int kDeepestMeasurements = 5;
constexpr int kMaxRowsOfRequest = 20'000;
constexpr std::size_t kMaxRowsBytes = 4 << 20;  // 200 bytes for each row.
constexpr std::size_t kMaxProfileBytes = 64 << 20;
constexpr std::size_t kMaxQuestionBytes = 1 << 20;  // 1,000 ranks with 100 clocks each.
constexpr int kMaxBudgetCount = 100'000;
constexpr int kMaxCount = 1'000'000;
constexpr double kMaxMeasuredSeconds = 1e6;
constexpr double kMaxMeasuredJoules = 1e12;

struct Row {
  int pp_rank = 0;
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  int frequency_mhz = 0;
  double time_s = 0;
  double energy_j = 0;
  int samples = 1;
  double time_ci_s = 0;
  double energy_ci_j = 0;
};

// The pp_ranks and chunks that rows may have.
struct Shape {
  int pp_ranks = 1;
  int chunks = 1;
};

Result<Shape> ShapeOf(const store::JobRecord& job) {
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, job_planning::StoredJobSpec(job.body));
  const schedule::Schedule& schedule = spec.planned.schedule;
  return Shape{.pp_ranks = static_cast<int>(schedule.pp_ranks.size()),
               .chunks = 1 + std::ranges::max(schedule.chunk_of_stage)};
}

Row ReadRow(const Node& node, const Shape& shape) {
  node.RequireObject({"pp_rank", "chunk", "instruction", "frequency", "time", "energy", "samples",
                      "time_ci", "energy_ci"});
  Row row;
  row.pp_rank = node.Member("pp_rank").Count(0, shape.pp_ranks - 1, "a pp_rank of the job");
  if (node.Has("chunk")) {
    row.chunk = node.Member("chunk").Count(0, shape.chunks - 1, "a chunk of the job");
  }
  const Node kind = node.Member("instruction");
  const auto known = ParseInstructionKind(kind.Text());
  if (!known || !IsComputation(*known)) {
    ThrowAt(kind.path,
            "{} is not an instruction of a stage (expected \"forward\", \"backward\", …)",
            Excerpt(kind.Text()));
  }
  row.kind = *known;
  row.frequency_mhz = node.Member("frequency").Count(1, kHighestFrequencyMhz, "MHz, such as 1410");
  row.time_s = node.Member("time").Number(1e-9, kMaxMeasuredSeconds, "seconds");
  row.energy_j = node.Member("energy").Number(1e-9, kMaxMeasuredJoules, "joules");
  if (node.Has("samples")) row.samples = node.Member("samples").Count(1, kMaxCount, "a count");
  if (node.Has("time_ci")) {
    row.time_ci_s = node.Member("time_ci").Number(0, kMaxMeasuredSeconds, "seconds");
  }
  if (node.Has("energy_ci")) {
    row.energy_ci_j = node.Member("energy_ci").Number(0, kMaxMeasuredJoules, "joules");
  }
  return row;
}

std::vector<Row> ReadRows(const Node& list, const Shape& shape) {
  const std::size_t count = list.ListSize();
  if (count > kMaxRowsOfRequest)
    ThrowAt(list.path, "has more than {} rows (send them in parts)", kMaxRowsOfRequest);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < count; ++i) rows.push_back(ReadRow(list[i], shape));
  return rows;
}

// All measurements up to this number.
struct MeasuredRows {
  std::vector<Row> rows;
  std::int64_t last = 0;
};

Answer<MeasuredRows> AllRows(const Context& context) {
  const auto shape = ShapeOf(*context.job);
  if (!shape) return Refuse(shape);
  const auto measured = context.services.store.ListMeasurements(context.job->id);
  if (!measured) return Refuse(measured);
  std::vector<Row> rows;
  for (const std::string& part : measured->rows) {
    const auto read = json_file::Read(part, "measurements", kDeepestMeasurements,
                                      [&](const Node& node) { return ReadRows(node, *shape); });
    if (!read) return Refuse(500, "The database is damaged", read.error().message);
    rows.insert(rows.end(), read->begin(), read->end());
  }
  return MeasuredRows{.rows = std::move(rows), .last = measured->last};
}

std::string Csv(const std::vector<Row>& rows) {
  std::string text = "pp_rank,chunk,instruction,frequency,time,energy,samples,time_ci,energy_ci\n";
  const auto interval = [](double half_width) {
    return half_width > 0 ? fmt::format("{}", half_width) : std::string();
  };
  for (const Row& row : rows) {
    text += fmt::format("{},{},{},{},{},{},{},{},{}\n", row.pp_rank, row.chunk, Name(row.kind),
                        row.frequency_mhz, row.time_s, row.energy_j, row.samples,
                        interval(row.time_ci_s), interval(row.energy_ci_j));
  }
  return text;
}

// Stores a profile if planning can use it. It contains the measurements up to `measured_to`.
Answer<http::Response> StoreProfile(const Context& context, const std::string& csv,
                                    std::int64_t measured_to) {
  const store::JobRecord& job = *context.job;
  if (auto runs = RequireRunning(job); !runs) return tl::unexpected(runs.error());
  const auto prepared =
      job_planning::PrepareJob(job, {.version = job.profile_version + 1, .csv = csv});
  if (!prepared) return Refuse(prepared);
  const auto version =
      context.services.store.PutProfile(job.id, csv, context.now, measured_to, context.By());
  if (!version) return Refuse(version);
  ordered_json answer{{"profile_version", *version}, {"planning", "due"}};
  if (!prepared->warnings.empty()) answer["warnings"] = prepared->warnings;
  return JsonResponse(answer, 202);
}

Answer<http::Response> PutProfile(const Context& context) {
  // Replaces all measurements.
  return StoreProfile(context, context.request.body, store::Store::kAllMeasurements);
}

Answer<http::Response> GetProfile(const Context& context) {
  const auto profile = context.services.store.FindProfile(context.job->id);
  if (!profile) return Refuse(profile);
  if (!*profile) {
    return Refuse(404, "There is no profile yet", "the job has no profile",
                  "send one: perseus job register --profile FILE");
  }
  http::Response response;
  response.content_type = "text/csv; charset=utf-8";
  response.body = (*profile)->csv;
  response.fields.emplace_back("ETag", fmt::format("\"{}\"", (*profile)->version));
  return response;
}

Answer<http::Response> AddMeasurements(const Context& context) {
  const store::JobRecord& job = *context.job;
  if (auto runs = RequireRunning(job); !runs) return tl::unexpected(runs.error());
  const auto shape = ShapeOf(job);
  if (!shape) return Refuse(shape);
  struct Body {
    std::vector<Row> rows;
    std::string text;
    bool is_ready = false;
  };
  const auto body = ReadBody(context.request.body, kDeepestMeasurements, [&](const Node& node) {
    node.RequireObject({"rows", "ready"});
    const Node rows = node.Member("rows");
    Body read{.rows = ReadRows(rows, *shape), .text = rows.value.dump()};
    if (node.Has("ready")) read.is_ready = node.Member("ready").Flag();
    return read;
  });
  if (!body) return tl::unexpected(body.error());
  if (body->is_ready) {
    // The rows are stored with the profile, or not at all.
    auto all = AllRows(context);
    if (!all) return tl::unexpected(all.error());
    all->rows.insert(all->rows.end(), body->rows.begin(), body->rows.end());
    return StoreProfile(context, Csv(all->rows), all->last);
  }
  if (!body->rows.empty()) {
    const auto added = context.services.store.AddMeasurements(job.id, body->text, context.now);
    if (!added) return Refuse(added);
    if (!*added) {
      return Refuse(
          409, "There are too many measurements",
          fmt::format(
              "with these, the job would have more than {} MB of measurements outside its profile",
              store::Store::kMaxMeasurementBytes / 1'000'000),
          "turn them into the profile (\"ready\": true), or upload a profile, which replaces them");
    }
  }
  return JsonResponse({{"rows", body->rows.size()}});
}

profiler::MeasuredOption Measured(const Row& row) {
  profiler::MeasuredOption option;
  option.group = {row.pp_rank, row.chunk, row.kind};
  option.frequency_mhz = row.frequency_mhz;
  option.samples = row.samples;
  option.time_s = row.time_s;
  option.time_ci_s = row.time_ci_s;
  option.power_w = row.energy_j / row.time_s;
  // The error of energy is the error of power, because times are much more exact.
  option.power_ci_w = row.energy_ci_j / row.time_s;
  return option;
}

struct NextQuestion {
  std::vector<std::vector<int>> clocks_mhz;
  profiler::SweepSpent spent;
  profiler::SweepBudget budget;
};

NextQuestion ReadQuestion(const Node& node, std::size_t ranks) {
  node.RequireObject({"clocks_mhz", "spent", "budget"});
  NextQuestion question;
  const Node clocks = node.Member("clocks_mhz");
  if (clocks.ListSize() != ranks) {
    ThrowAt(clocks.path, "has {} lists (expected {}: one for each rank of the pipeline)",
            clocks.ListSize(), ranks);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<int>& of_rank = question.clocks_mhz.emplace_back();
    for (std::size_t i = 0; i < clocks[rank].ListSize(); ++i) {
      of_rank.push_back(clocks[rank][i].Count(1, kHighestFrequencyMhz, "MHz, such as 1410"));
    }
    std::ranges::sort(of_rank);
    if (of_rank.empty()) ThrowAt(clocks[rank].path, "is empty (list the clocks of the GPU)");
  }
  if (node.Has("spent")) {
    const Node spent = node.Member("spent");
    spent.RequireObject({"steps", "seconds"});
    question.spent.steps = spent.Member("steps").Count(0, kMaxCount, "steps");
    question.spent.seconds = spent.Member("seconds").Number(0, kMaxMeasuredSeconds, "seconds");
  }
  if (node.Has("budget")) {
    const Node budget = node.Member("budget");
    budget.RequireObject({"frequencies", "steps", "steps_per_round", "slowdown_percent"});
    const auto count = [&](std::string_view key, int least, int& value) {
      if (budget.Has(key)) value = budget.Member(key).Count(least, kMaxBudgetCount, "a count");
    };
    count("frequencies", 2, question.budget.frequencies);
    count("steps", 1, question.budget.steps);
    count("steps_per_round", 1, question.budget.steps_per_round);
    if (budget.Has("slowdown_percent")) {
      question.budget.slowdown = budget.Member("slowdown_percent").Number(0, 1e4, "percent") / 100;
    }
  }
  return question;
}

Answer<http::Response> NextClocks(const Context& context) {
  const auto spec = job_planning::StoredJobSpec(context.job->body);
  if (!spec) return Refuse(spec);
  const auto question = ReadBody(context.request.body, kDeepestMeasurements, [&](const Node& node) {
    return ReadQuestion(node, spec->planned.schedule.pp_ranks.size());
  });
  if (!question) return tl::unexpected(question.error());
  const auto all = AllRows(context);
  if (!all) return tl::unexpected(all.error());
  std::vector<profiler::MeasuredOption> measured;
  for (const Row& row : all->rows) measured.push_back(Measured(row));
  const profiler::SweepJob job{.schedule = spec->planned.schedule,
                               .model = spec->planned.model,
                               .clocks_mhz = question->clocks_mhz};
  const auto round = profiler::ChooseRound(job, question->budget, measured, question->spent);
  if (!round) return Refuse(round);
  auto clocks = ordered_json::array();
  for (const protocol::KindClock& clock : round->clocks) {
    clocks.push_back({{"pp_rank", clock.pp_rank},
                      {"chunk", clock.chunk},
                      {"kind", Name(clock.kind)},
                      {"frequency_mhz", clock.frequency_mhz}});
  }
  return JsonResponse({{"clocks", std::move(clocks)},
                       {"steps", round->steps},
                       {"predicted_s", round->predicted_s},
                       {"gain", round->gain},
                       {"reason", round->reason}});
}

}  // namespace

void AddProfileEndpoints(Endpoints& endpoints) {
  endpoints.Add("PUT", "/v1/jobs/{job}/profile", Access::kJob, PutProfile,
                {.body_bytes = kMaxProfileBytes, .media_type = "text/csv"});
  endpoints.Add("GET", "/v1/jobs/{job}/profile", Access::kRead, GetProfile);
  endpoints.Add("POST", "/v1/jobs/{job}/measurements", Access::kJob, AddMeasurements,
                {.body_bytes = kMaxRowsBytes});
  endpoints.Add("POST", "/v1/jobs/{job}/next-clocks", Access::kJob, NextClocks,
                {.body_bytes = kMaxQuestionBytes});
}

}  // namespace perseus::server
