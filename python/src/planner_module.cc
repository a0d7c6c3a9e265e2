// perseus._planner: the planner for Python. It loads a job, and computes the job's frontier and its
// plans. perseus/_plan.py makes objects with NumPy arrays from the results.
//
// The text of an error is the same as in the program, but it names arguments of Python instead of
// flags. Wrong input raises perseus.Error (a ValueError). A target that no plan meets raises
// perseus.UnreachableError. A failure of the system raises OSError. Planning releases Python's
// global interpreter lock.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/wording.h"
#include "perseus/planning/job/job.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/job/plausibility.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/tradeoff.h"
#include "python/src/objects.h"

namespace perseus::python {
namespace {

// Returns the argument of Python that sets this key of the job file.
std::string ArgumentOf(std::string_view key) {
  return std::string(key == "gpu_gib" ? "memory_gib" : key);
}

// Returns the message with arguments of Python instead of keys (RenameKeys): memory_gib=2.
std::string WithArgumentNames(std::string_view message) {
  return RenameKeys(message, [](std::string_view key, std::string_view value) {
    return fmt::format("{}{}{}", ArgumentOf(key), value.empty() ? "" : "=", value);
  });
}

// Runs `work(stop)` in an additional thread, without the global interpreter lock. After Ctrl-C,
// requests a stop, and throws what Python's handler raised.
template <typename Work>
auto UntilInterrupt(Work work) {
  std::stop_source stop;
  auto result = std::async(std::launch::async, [&] { return work(stop.get_token()); });
  auto is_done = [&] {
    const WithoutLock released;
    return result.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  };
  while (!is_done()) {
    // Python runs the handlers of signals only if its main thread asks for them.
    if (PyErr_CheckSignals() == 0) continue;
    stop.request_stop();
    const WithoutLock released;
    result.wait();
    throw ErrorIsSet();
  }
  return result.get();
}

// A job that is ready to be planned.
struct PlanningJob {
  static constexpr const char* kCapsuleName = "perseus.job";

  job::LoadedJob job;
  plan::Planner planner;
};

// The content of a plan's file.
struct PlannedFile {
  static constexpr const char* kCapsuleName = "perseus.plan";

  plan_file::PlanFile file;
};

// ---- From arguments of Python ----

recipe::ChangeRules ReadRules(PyObject* given) {
  using Limit = recipe::ChangeRules::Limit;
  recipe::ChangeRules rules;
  std::string limit = "default";
  ReadItem(given, "limit", limit);
  rules.limit = limit == "auto"    ? Limit::kPick
                : limit == "given" ? Limit::kGiven
                : limit == "none"  ? Limit::kNone
                                   : Limit::kPickShortly;
  ReadItem(given, "most_changes", rules.most_changes);
  ReadItem(given, "with_tradeoff", rules.with_tradeoff);
  return rules;
}

job::JobSettings ReadSettings(PyObject* given) {
  job::JobSettings settings;
  ReadItem(given, "profile", settings.profile);
  ReadItem(given, "profile_text", settings.profile_text);
  ReadItem(given, "job_file", settings.job_file);
  ReadItem(given, "schedule", settings.schedule);
  ReadItem(given, "schedule_file", settings.schedule_file);
  ReadItem(given, "graph", settings.graph);
  ReadItem(given, "facts", settings.facts);
  ReadItem(given, "pp_ranks", settings.pp_ranks);
  ReadItem(given, "microbatches", settings.microbatches);
  ReadItem(given, "chunks", settings.chunks);
  ReadItem(given, "pipelines", settings.pipelines);
  ReadItem(given, "gpus_per_stage", settings.gpus_per_stage);
  ReadItem(given, "blocking_power_w", settings.blocking_power_w);
  ReadItem(given, "switch_latency_ms", settings.switch_latency_ms);
  ReadItem(given, "p2p_s", settings.p2p_s);
  ReadItem(given, "load_s", settings.load_s);
  ReadItem(given, "all_reduce_s", settings.all_reduce_s);
  ReadItem(given, "optimizer_s", settings.optimizer_s);
  ReadItem(given, "max_in_flight", settings.max_in_flight);
  ReadItem(given, "activation_mib", settings.memory.activation_mib);
  ReadItem(given, "kept_mib", settings.memory.kept_mib);
  ReadItem(given, "memory_gib", settings.memory.gpu_gib);
  ReadItem(given, "model_gib", settings.memory.model_gib);
  ReadItem(given, "fold", settings.fold);
  std::vector<double> cost;  // The stall (s) and the energy (J) of a change.
  ReadItem(given, "switch_cost", cost);
  if (cost.size() == 2) {
    settings.switch_cost = schedule::SwitchCost{ToNanoseconds(cost[0]), cost[1]};
  }
  settings.changes = ReadRules(given);
  return settings;
}

// Reads (kind, value, price of a GPU-hour).
plan::Target ReadTarget(PyObject* given) {
  using Kind = plan::Target::Kind;
  static constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"slowdown_percent", Kind::kSlowdown},
      {"deadline_s", Kind::kDeadline},
      {"energy_budget_j", Kind::kEnergyBudget},
      {"power_cap_w", Kind::kPowerCap},
      {"least_energy", Kind::kMinEnergy},
      {"least_energy_delay", Kind::kEdp},
      {"price", Kind::kPrice}};
  const char* name = nullptr;
  plan::Target target;
  if (PyArg_ParseTuple(given, "sdd", &name, &target.value, &target.gpu_hour) == 0) {
    throw ErrorIsSet();
  }
  for (const auto& [known, kind] : kKinds) {
    if (known == name) target.kind = kind;
  }
  return target;
}

recipe::Wishes ReadWishes(PyObject* given) {
  recipe::Wishes wishes;
  ReadItem(given, "effort", wishes.effort);
  ReadItem(given, "with_frontier", wishes.with_frontier);
  std::vector<double> percents;  // The noise of single instructions, and of whole pp_ranks.
  ReadItem(given, "noise_percent", percents);
  if (percents.size() == 2) {
    const auto fraction = [](double percent) {
      const Result<double> read = noise::FromPercent(percent);
      return OrThrow(read ? read : Fail(read, "noise_percent"));
    };
    wishes.noise = noise::Noise{fraction(percents[0]), fraction(percents[1])};
  }
  return wishes;
}

// ---- To objects of Python ----

std::vector<std::string> WithArgumentNames(std::vector<std::string> messages) {
  for (std::string& message : messages) message = WithArgumentNames(message);
  return messages;
}

// Returns likely mistakes in the input, one line for each.
std::vector<std::string> WarningsOf(const job::LoadedJob& job) {
  auto warnings = job::CheckPlausible(job);
  if (!warnings) return {WithArgumentNames(warnings.error().Message())};
  return WithArgumentNames(*std::move(warnings));
}

// Returns the schedule of the job. Null for a general graph.
Json DescribeSchedule(const job::LoadedJob& job) {
  if (job.planned.IsGeneralGraph()) return nullptr;
  return {{"name", job.planned.schedule.name},
          {"csv", schedule::FormatSchedule(job.planned.schedule)},
          {"in_flight", schedule::PeakInFlight(job.planned.schedule)},
          {"memory_source", job.auto_schedule ? job.auto_schedule->memory.source : ""}};
}

Json DescribeJob(const PlanningJob& job) {
  const plan::Evaluation& baseline = job.planner.baseline();
  return {{"baseline", {ToSeconds(baseline.time), baseline.energy_j, baseline.switches}},
          {"schedule", DescribeSchedule(job.job)},
          {"warnings", WarningsOf(job.job)}};
}

Json FrontierColumns(const plan::Frontier& frontier) {
  using plan::FrontierPoint;
  const auto time_s = [](const FrontierPoint& point) { return ToSeconds(point.time); };
  return {{"times_s", Column<double>(frontier.points, time_s)},
          {"energies_j", Column<double>(frontier.points, &FrontierPoint::bound_j)},
          {"prices_w", Column<double>(frontier.points, &FrontierPoint::price_w)},
          {"errors_j", Column<double>(frontier.points, &FrontierPoint::error_j)},
          {"least_energy", frontier.least_energy}};
}

// Returns what each limit of clock changes saves.
Json TradeoffRows(const plan::Planner& planner, const recipe::SwitchTradeoff& tradeoff) {
  Json rows = Json::array();
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    Json& row = rows.emplace_back();
    row["max_switches"] = limited.most_changes;
    row["saving"] = nullptr;
    if (limited.plan) {
      row["saving"] = 1 - limited.plan->evaluation.energy_j / planner.baseline().energy_j;
    }
    // JSON has no infinity: the bound is None if no plan exists.
    if (std::isinf(limited.lower_bound_j)) {
      row["lower_bound_j"] = nullptr;
    } else {
      row["lower_bound_j"] = limited.lower_bound_j;
    }
  }
  return rows;
}

Json DescribePlan(const recipe::PlannedTarget& found) {
  const plan::Plan& plan = found.plan;
  Json described = {{"name", found.slug},
                    {"target", plan.target},
                    {"deadline_s", ToSeconds(plan.deadline)},
                    {"time_s", ToSeconds(plan.evaluation.time)},
                    {"energy_j", plan.evaluation.energy_j},
                    {"lower_bound_j", plan.lower_bound_j},
                    {"gap", plan.gap()},
                    {"switches", plan.evaluation.switches},
                    {"max_switches", nullptr}};
  if (found.most_switches) described["max_switches"] = *found.most_switches;
  return described;
}

// Returns all instructions, pp_rank by pp_rank, in execution order.
Json InstructionColumns(const plan_file::PlanFile& file) {
  using plan_file::PlannedInstruction;
  struct Row {
    std::size_t pp_rank;
    const PlannedInstruction& instruction;
  };
  std::vector<Row> rows;
  for (std::size_t rank = 0; rank < file.pp_ranks.size(); ++rank) {
    for (const PlannedInstruction& one : file.pp_ranks[rank].instructions)
      rows.push_back({rank, one});
  }
  const auto whole = [&](auto get) { return Column<std::int32_t>(rows, get); };
  const auto of = [](auto member) {
    return [member](const Row& row) { return row.instruction.*member; };
  };
  const auto seconds = [&](Nanoseconds PlannedInstruction::*member) {
    return Column<double>(rows, [=](const Row& row) { return ToSeconds(row.instruction.*member); });
  };
  Json columns = {{"pp_rank", whole([](const Row& row) { return row.pp_rank; })},
                  {"stage", whole(of(&PlannedInstruction::stage))},
                  {"kind", whole(of(&PlannedInstruction::kind))},
                  {"microbatch", whole(of(&PlannedInstruction::microbatch))},
                  {"chunk", whole(of(&PlannedInstruction::chunk))},
                  {"frequency_mhz", whole(of(&PlannedInstruction::frequency_mhz))},
                  {"start_s", seconds(&PlannedInstruction::start)},
                  {"duration_s", seconds(&PlannedInstruction::duration)},
                  {"energy_j", Column<double>(rows, of(&PlannedInstruction::energy_j))}};
  if (file.job.IsGeneralGraph()) {
    for (const Row& row : rows) columns["name"].push_back(row.instruction.name);
  }
  return columns;
}

// Returns the knobs other than the clock, by name. NaN: the plan chooses no value.
Json KnobColumns(const plan_file::PlanFile& file) {
  Json columns = Json::object();
  for (std::size_t knob = 0; knob < file.other_knob_names.size(); ++knob) {
    std::vector<double> values;
    for (const plan_file::PlannedRank& rank : file.pp_ranks) {
      for (const plan_file::PlannedInstruction& one : rank.instructions) {
        values.push_back(one.knobs.empty() ? std::numeric_limits<double>::quiet_NaN()
                                           : one.knobs[knob]);
      }
    }
    columns[file.other_knob_names[knob]] = Column<double>(values, std::identity{});
  }
  return columns;
}

Json DescribeRow(const schedule_search::TradeoffRow& row) {
  const schedule_search::Candidate& candidate = row.candidate;
  Json described = {{"more_in_flight", row.more},
                    {"origin", candidate.origin},
                    {"csv", schedule::FormatSchedule(candidate.schedule)},
                    {"in_flight", candidate.in_flight},
                    {"energy_j", row.plan.evaluation.energy_j},
                    {"time_s", ToSeconds(row.plan.evaluation.time)},
                    {"time_at_maximum_s", ToSeconds(candidate.time_at_maximum)},
                    {"saving", row.saving},
                    {"most_saving", nullptr},
                    {"bubble", row.bubble},
                    {"changes_per_gpu", row.changes_per_rank}};
  if (row.most_saving) described["most_saving"] = *row.most_saving;
  return described;
}

Json RangesOfArguments() {
  Json ranges;
  auto add = [&](const char* name, const NumberRange& range) {
    ranges[name] = {range.least, range.most, range.unit};
  };
  for (const char* name : {"pp_ranks", "microbatches", "chunks", "pipelines", "gpus_per_stage"}) {
    add(name, job::kCountRange);
  }
  for (const char* name : {"p2p_s", "load_s", "all_reduce_s", "optimizer_s"}) {
    add(name, job::kSecondsRange);
  }
  add("max_in_flight", job::kCountRange);
  add("more", {0, 1e6, "microbatches"});
  add("activation_mib", job::kActivationRange);
  add("kept_mib", job::kKeptRange);
  add("memory_gib", job::kGpuMemoryRange);
  add("model_gib", job::kModelMemoryRange);
  add("max_switches", {0, job::kMostSwitches, "clock changes"});
  add("noise_percent", {0, 100 * noise::kMostNoise, "percent"});
  add("effort", {plan::kFirstLook, plan::kMostEffort, "whole numbers"});
  add("switch_stall_s", job::kStallRange);
  add("switch_energy_j", job::kSwitchEnergyRange);
  add("blocking_power_w", job::kBlockingPowerRange);
  add("switch_latency_ms", job::kSwitchLatencyRange);
  add("slowdown_percent", plan::ValueRange(plan::Target::Kind::kSlowdown));
  add("deadline_s", plan::ValueRange(plan::Target::Kind::kDeadline));
  add("energy_budget_j", plan::ValueRange(plan::Target::Kind::kEnergyBudget));
  add("power_cap_w", plan::ValueRange(plan::Target::Kind::kPowerCap));
  add("price", plan::ValueRange(plan::Target::Kind::kPrice));
  return ranges;
}

Json KindNames() {
  Json names;
  for (auto kind = InstructionKind::kForward; kind <= InstructionKind::kGeneric;
       kind = static_cast<InstructionKind>(static_cast<int>(kind) + 1)) {
    names.push_back(Name(kind));
  }
  return names;
}

// ---- Exceptions ----

// These objects exist as long as the interpreter.
PyObject* input_error = nullptr;
PyObject* unreachable_error = nullptr;

PyObject* TypeOf(const Error& error) {
  if (error.kind == ErrorKind::kSystem || error.kind == ErrorKind::kFile) return PyExc_OSError;
  return error.kind == ErrorKind::kUnreachable ? unreachable_error : input_error;
}

void SetAttribute(PyObject* object, const char* name, const Json& value) {
  if (PyObject_SetAttrString(object, name, ToPython(value).get()) != 0) throw ErrorIsSet();
}

// Raises an exception with the message. The attributes of the exception have the parts of the
// error.
void Raise(const Failure& failure) {
  const Error& error = failure.error;
  // The message may contain a path with any bytes.
  const auto text = [](std::string_view part) -> Json {
    if (part.empty()) return nullptr;
    return OneLine(WithArgumentNames(part));
  };
  const Object message = ToPython(text(error.Message()));
  PyObject* const type = TypeOf(error);
  const Object exception(PyObject_CallFunctionObjArgs(type, message.get(), nullptr));
  SetAttribute(exception.get(), "remedy", text(error.remedy));
  SetAttribute(exception.get(), "setting", text(ArgumentOf(error.setting())));
  SetAttribute(exception.get(), "file", text(error.where.file));
  SetAttribute(exception.get(), "line", error.where.line > 0 ? Json(error.where.line) : Json());
  PyErr_SetObject(type, exception.get());
}

void AddExceptions(PyObject* module) {
  input_error =
      Object(PyErr_NewExceptionWithDoc(
                 "perseus.Error", "The input is wrong. The message says where, and the remedy.",
                 PyExc_ValueError, nullptr))
          .release();
  unreachable_error =
      Object(PyErr_NewExceptionWithDoc(
                 "perseus.UnreachableError",
                 "No plan meets the target. The message says which values can be met.", input_error,
                 nullptr))
          .release();
  // Raise sets these attributes. If Python itself refuses an argument, the exception has none.
  for (const char* part : {"remedy", "setting", "file", "line"}) {
    SetAttribute(input_error, part, nullptr);
  }
  if (PyModule_AddObjectRef(module, "Error", input_error) != 0 ||
      PyModule_AddObjectRef(module, "UnreachableError", unreachable_error) != 0) {
    throw ErrorIsSet();
  }
}

// ---- The functions of the module ----

template <typename Body>
PyObject* Call(const Body& body) {
  return Guard(Raise, body);
}

// load(settings) -> job
PyObject* Load(PyObject*, PyObject* given) {
  return Call([&] {
    const job::JobSettings settings = ReadSettings(given);
    return MakeCapsule(UntilInterrupt([&](const std::stop_token& stop) {
      job::LoadedJob job = OrThrow(job::LoadJob(settings, {.stop = stop}));
      plan::Planner planner = OrThrow(plan::Planner::Create(job.graph, job.model));
      return PlanningJob{std::move(job), std::move(planner)};
    }));
  });
}

PyObject* Describe(PyObject*, PyObject* job) {
  return Call([&] { return ToPython(DescribeJob(FromCapsule<PlanningJob>(job))); });
}

// If `wishes` have no noise, uses the noise of the job. If there is no target, uses the default
// target of the job.
recipe::Wishes WishesFor(const job::LoadedJob& job, PyObject* targets, PyObject* given) {
  const recipe::Wishes of_job = job.wishes();
  recipe::Wishes wishes = ReadWishes(given);
  wishes.targets.clear();
  for (Py_ssize_t i = 0; i < PyList_Size(targets); ++i) {
    wishes.targets.push_back(ReadTarget(PyList_GetItem(targets, i)));
  }
  if (wishes.targets.empty()) wishes.targets = of_job.targets;
  for (plan::Target& target : wishes.targets) target.gpus = job.gpus();
  wishes.changes = of_job.changes;
  if (!wishes.noise) wishes.noise = of_job.noise;
  return wishes;
}

// Returns [the plan as a dictionary, its file].
Object MakePlanPair(const PlanningJob& job, const recipe::PlannedTarget& found,
                    const plan::Target& target) {
  const Object described = ToPython(DescribePlan(found));
  const Object file = MakeCapsule(
      PlannedFile{OrThrow(plan::MakePlanFile(job.planner, found.plan, target, job.job.planned))});
  return Object(PyTuple_Pack(2, described.get(), file.get()));
}

// plan(job, targets, wishes) -> the plans of the targets, in the order of the targets
PyObject* Plan(PyObject*, PyObject* arguments) {
  return Call([&] {
    PyObject *capsule = nullptr, *targets = nullptr, *given = nullptr;
    if (PyArg_ParseTuple(arguments, "OO!O", &capsule, &PyList_Type, &targets, &given) == 0) {
      throw ErrorIsSet();
    }
    const PlanningJob& job = FromCapsule<PlanningJob>(capsule);
    const recipe::Wishes wishes = WishesFor(job.job, targets, given);
    recipe::Progress silent;
    const recipe::JobPlans found = OrThrow(UntilInterrupt([&](const std::stop_token& stop) {
      return recipe::PlanJob(job.planner, wishes, silent, {}, stop);
    }));
    Json planned;
    planned["frontier"] = found.frontier ? FrontierColumns(*found.frontier) : nullptr;
    planned["switch_tradeoff"] =
        found.switch_tradeoff ? TradeoffRows(job.planner, *found.switch_tradeoff) : nullptr;
    Object result = ToPython(planned);
    const Object plans(PyList_New(0));
    for (const plan::Target& target : wishes.targets) {
      const Object pair = MakePlanPair(job, *found.Find(target), target);
      if (PyList_Append(plans.get(), pair.get()) != 0) throw ErrorIsSet();
    }
    if (PyDict_SetItemString(result.get(), "plans", plans.get()) != 0) throw ErrorIsSet();
    return result;
  });
}

PyObject* Instructions(PyObject*, PyObject* plan) {
  return Call([&] { return ToPython(InstructionColumns(FromCapsule<PlannedFile>(plan).file)); });
}

PyObject* Knobs(PyObject*, PyObject* plan) {
  return Call([&] { return ToPython(KnobColumns(FromCapsule<PlannedFile>(plan).file)); });
}

PyObject* FormatPlan(PyObject*, PyObject* plan) {
  return Call([&] { return ToPython(plan_file::FormatPlan(FromCapsule<PlannedFile>(plan).file)); });
}

// search_schedules(settings, more) -> what memory saves, as `perseus schedule search` prints it. If
// `more` is empty, uses the default rows.
PyObject* SearchSchedules(PyObject*, PyObject* arguments) {
  return Call([&] {
    PyObject *given = nullptr, *rows = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &given, &rows) == 0) throw ErrorIsSet();
    const job::JobSettings settings = ReadSettings(given);
    schedule_search::TradeoffOptions options;
    std::vector<int> more;
    Read(rows, more);
    if (!more.empty()) options.more = more;
    std::vector<std::string> warnings;
    std::string source;
    const auto tradeoff = UntilInterrupt([&](const std::stop_token& stop) {
      const auto job = OrThrow(job::LoadUnscheduledJob(settings));
      warnings = OrThrow(job::CheckPlausible(OrThrow(job::LayOutReference(job))));
      source = job.memory.source;
      options.memory = job.memory.bytes;
      options.stop = stop;
      return OrThrow(schedule_search::ComputeTradeoff(job.search_job(), options));
    });
    Json found = {{"fixed", DescribeRow(tradeoff.fixed)},
                  {"rows", Json::array()},
                  {"fitting", nullptr},
                  {"baseline_time_s", ToSeconds(tradeoff.reference.time)},
                  {"baseline_energy_j", tradeoff.reference.energy_j},
                  {"conclusion", schedule_search::Conclude(tradeoff)},
                  {"memory_source", source},
                  {"warnings", WithArgumentNames(warnings)}};
    for (const schedule_search::TradeoffRow& row : tradeoff.rows) {
      found["rows"].push_back(DescribeRow(row));
    }
    if (tradeoff.fitting) found["fitting"] = DescribeRow(*tradeoff.fitting);
    return ToPython(found);
  });
}

// write_file(path, text): all of it, or nothing if that fails.
PyObject* WriteFile(PyObject*, PyObject* arguments) {
  return Call([&] {
    PyObject *path = nullptr, *text = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &path, &text) == 0) throw ErrorIsSet();
    std::string name, content;
    Read(path, name);
    Read(text, content);
    UntilInterrupt([&](const std::stop_token&) { OrThrow(WriteFileAtomically(name, content)); });
    return ToPython(nullptr);
  });
}

PyObject* Ranges(PyObject*, PyObject*) {
  return Call([] { return ToPython(RangesOfArguments()); });
}
PyObject* Kinds(PyObject*, PyObject*) {
  return Call([] { return ToPython(KindNames()); });
}

PyMethodDef functions[] = {{"load", Load, METH_O, nullptr},
                           {"describe", Describe, METH_O, nullptr},
                           {"plan", Plan, METH_VARARGS, nullptr},
                           {"instructions", Instructions, METH_O, nullptr},
                           {"knobs", Knobs, METH_O, nullptr},
                           {"format_plan", FormatPlan, METH_O, nullptr},
                           {"search_schedules", SearchSchedules, METH_VARARGS, nullptr},
                           {"write_file", WriteFile, METH_VARARGS, nullptr},
                           {"ranges", Ranges, METH_NOARGS, nullptr},
                           {"kind_names", Kinds, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_planner",
                          "The planner of Perseus. Use it through the package perseus.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace perseus::python

PyMODINIT_FUNC PyInit__planner() {
  using namespace perseus::python;
  return Call([] {
    Object module(PyModule_Create(&definition));
    AddExceptions(module.get());
    return module;
  });
}
