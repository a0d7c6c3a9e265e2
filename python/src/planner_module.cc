// perseus._planner: the planner for Python. It loads a job, and computes the job's frontier and its
// plans. perseus/_plan.py makes objects with NumPy arrays from the results.
//
// The text of an error is the same as in the program, but it names arguments of Python instead of
// flags. Wrong input raises perseus.Error (a ValueError). A target that no plan meets raises
// perseus.UnreachableError. A failure of the system raises OSError. Planning releases Python's
// global interpreter lock.
#include <fmt/core.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
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

namespace py = pybind11;

namespace perseus {
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

struct Failure {
  Error error;
};

template <typename T>
T OrThrow(Result<T> result) {
  if (!result) throw Failure{std::move(result.error())};
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// Runs `work(stop)` in an additional thread, without the global interpreter lock. After Ctrl-C,
// requests a stop, and throws what Python's handler raised. Requires that the caller has released
// the lock.
template <typename Work>
auto UntilInterrupt(Work work) {
  std::stop_source stop;
  auto result = std::async(std::launch::async, [&] { return work(stop.get_token()); });
  while (result.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    // Python runs the handlers of signals only if its main thread asks for them.
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) continue;
    const py::error_already_set interrupt;
    stop.request_stop();
    const py::gil_scoped_release release;
    result.wait();
    throw interrupt;
  }
  return result.get();
}

// A job that is ready to be planned.
struct PlanningJob {
  explicit PlanningJob(const job::JobSettings& settings)
      : job(OrThrow(UntilInterrupt(
            [&](const std::stop_token& stop) { return job::LoadJob(settings, {.stop = stop}); }))),
        planner(OrThrow(plan::Planner::Create(job.graph, job.model))) {}

  // Returns likely mistakes in the input, one line for each.
  std::vector<std::string> Warnings() const {
    auto warnings = job::CheckPlausible(job);
    if (!warnings) return {WithArgumentNames(warnings.error().Message())};
    for (std::string& warning : *warnings) warning = WithArgumentNames(warning);
    return *std::move(warnings);
  }

  job::LoadedJob job;
  plan::Planner planner;
};

// A plan and the content of its file.
struct PlannedTarget {
  std::string slug;
  plan::Plan plan;
  std::optional<int> most_switches;
  plan_file::PlanFile file;
};

// The plans of the targets, in the order of the targets.
struct PlannedTargets {
  recipe::JobPlans all;
  std::vector<PlannedTarget> asked;
};

// Makes plans with the limit of the job. If `wishes` have no noise, uses the noise of the job. If
// there is no target, uses the default target of the job.
PlannedTargets PlanTargets(const PlanningJob& job, std::vector<plan::Target> targets,
                           recipe::Wishes wishes) {
  const recipe::Wishes of_job = job.job.wishes();
  wishes.targets = targets.empty() ? of_job.targets : std::move(targets);
  for (plan::Target& target : wishes.targets) target.gpus = job.job.gpus();
  wishes.changes = of_job.changes;
  if (!wishes.noise) wishes.noise = of_job.noise;
  recipe::Progress silent;
  PlannedTargets planned{OrThrow(UntilInterrupt([&](const std::stop_token& stop) {
                           return recipe::PlanJob(job.planner, wishes, silent, {}, stop);
                         })),
                         {}};
  for (const plan::Target& target : wishes.targets) {
    const recipe::PlannedTarget& found = *planned.all.Find(target);
    planned.asked.push_back(
        {found.slug, found.plan, found.most_switches,
         OrThrow(plan::MakePlanFile(job.planner, found.plan, target, job.job.planned))});
  }
  return planned;
}

// Returns a NumPy array. Python creates the array, and this function fills it through the buffer
// protocol. The reason: py::array_t of pybind11 before 2.12 knows only the memory layout of NumPy
// 1. With NumPy 2, all values of an array were the same.
template <typename T, typename Items, typename Get>
py::object Column(const Items& items, Get get) {
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, std::int32_t>);
  const char* const type = std::is_same_v<T, double> ? "f8" : "i4";
  py::object column = py::module_::import("numpy").attr("empty")(items.size(), type);
  const py::buffer_info memory = py::buffer(column).request(/*writable=*/true);
  T* value = static_cast<T*>(memory.ptr);
  for (const auto& item : items) *value++ = static_cast<T>(std::invoke(get, item));
  return column;
}

py::dict FrontierColumns(const plan::Frontier& frontier) {
  using plan::FrontierPoint;
  const auto time_s = [](const FrontierPoint& point) { return ToSeconds(point.time); };
  py::dict columns;
  columns["times_s"] = Column<double>(frontier.points, time_s);
  columns["energies_j"] = Column<double>(frontier.points, &FrontierPoint::bound_j);
  columns["prices_w"] = Column<double>(frontier.points, &FrontierPoint::price_w);
  columns["errors_j"] = Column<double>(frontier.points, &FrontierPoint::error_j);
  columns["least_energy"] = frontier.least_energy;
  return columns;
}

// Returns all instructions, pp_rank by pp_rank, in execution order.
py::dict InstructionColumns(const plan_file::PlanFile& file) {
  struct Row {
    std::size_t pp_rank;
    const plan_file::PlannedInstruction& instruction;
  };
  std::vector<Row> rows;
  for (std::size_t rank = 0; rank < file.pp_ranks.size(); ++rank) {
    for (const plan_file::PlannedInstruction& one : file.pp_ranks[rank].instructions)
      rows.push_back({rank, one});
  }
  py::dict columns;
  auto add = [&]<typename T>(const char* name, T, auto get) {
    columns[name] = Column<T>(rows, get);
  };
  auto of = [](auto member) {
    return [member](const Row& row) { return row.instruction.*member; };
  };
  add("pp_rank", std::int32_t{}, [](const Row& row) { return row.pp_rank; });
  add("stage", std::int32_t{}, of(&plan_file::PlannedInstruction::stage));
  add("kind", std::int32_t{}, of(&plan_file::PlannedInstruction::kind));
  add("microbatch", std::int32_t{}, of(&plan_file::PlannedInstruction::microbatch));
  add("chunk", std::int32_t{}, of(&plan_file::PlannedInstruction::chunk));
  add("frequency_mhz", std::int32_t{}, of(&plan_file::PlannedInstruction::frequency_mhz));
  add("start_s", double{}, [](const Row& row) { return ToSeconds(row.instruction.start); });
  add("duration_s", double{}, [](const Row& row) { return ToSeconds(row.instruction.duration); });
  add("energy_j", double{}, of(&plan_file::PlannedInstruction::energy_j));
  if (file.job.IsGeneralGraph()) {
    py::list names;
    for (const Row& row : rows) names.append(row.instruction.name);
    columns["name"] = names;
  }
  return columns;
}

// Returns the knobs other than the clock, by name. NaN: the plan chooses no value.
py::dict KnobColumns(const plan_file::PlanFile& file) {
  py::dict columns;
  for (std::size_t knob = 0; knob < file.other_knob_names.size(); ++knob) {
    std::vector<double> values;
    for (const plan_file::PlannedRank& rank : file.pp_ranks) {
      for (const plan_file::PlannedInstruction& one : rank.instructions) {
        values.push_back(one.knobs.empty() ? std::numeric_limits<double>::quiet_NaN()
                                           : one.knobs[knob]);
      }
    }
    columns[py::str(file.other_knob_names[knob])] = Column<double>(values, std::identity{});
  }
  return columns;
}

// Returns the schedule of the job. Empty for a general graph.
py::dict ScheduleOf(const job::LoadedJob& job) {
  py::dict described;
  if (job.planned.IsGeneralGraph()) return described;
  described["name"] = job.planned.schedule.name;
  described["csv"] = schedule::FormatSchedule(job.planned.schedule);
  described["in_flight"] = schedule::PeakInFlight(job.planned.schedule);
  described["memory_source"] = job.auto_schedule ? job.auto_schedule->memory.source : "";
  return described;
}

py::dict DescribeRow(const schedule_search::TradeoffRow& row) {
  const schedule_search::Candidate& candidate = row.candidate;
  py::dict described;
  described["more_in_flight"] = row.more;
  described["origin"] = candidate.origin;
  described["csv"] = schedule::FormatSchedule(candidate.schedule);
  described["in_flight"] = candidate.in_flight;
  described["energy_j"] = row.plan.evaluation.energy_j;
  described["time_s"] = ToSeconds(row.plan.evaluation.time);
  described["time_at_maximum_s"] = ToSeconds(candidate.time_at_maximum);
  described["saving"] = row.saving;
  described["most_saving"] = row.most_saving;
  described["bubble"] = row.bubble;
  described["changes_per_gpu"] = row.changes_per_rank;
  return described;
}

// Returns what memory saves, as `perseus schedule search` prints it. If `more` is empty, uses the
// default rows.
py::dict SearchSchedules(const job::JobSettings& settings, const std::vector<int>& more) {
  job::GpuMemory memory;
  std::vector<std::string> warnings;
  const auto tradeoff = [&] {
    const py::gil_scoped_release release;
    const auto job = OrThrow(job::LoadUnscheduledJob(settings));
    warnings = OrThrow(job::CheckPlausible(OrThrow(job::LayOutReference(job))));
    memory = job.memory;
    schedule_search::TradeoffOptions options;
    if (!more.empty()) options.more = more;
    options.memory = memory.bytes;
    return OrThrow(UntilInterrupt([&](const std::stop_token& stop) {
      options.stop = stop;
      return schedule_search::ComputeTradeoff(job.search_job(), options);
    }));
  }();
  py::list rows;
  for (const schedule_search::TradeoffRow& row : tradeoff.rows) rows.append(DescribeRow(row));
  py::dict found;
  found["fixed"] = DescribeRow(tradeoff.fixed);
  found["rows"] = rows;
  found["fitting"] = tradeoff.fitting ? py::object(DescribeRow(*tradeoff.fitting)) : py::none();
  found["baseline_time_s"] = ToSeconds(tradeoff.reference.time);
  found["baseline_energy_j"] = tradeoff.reference.energy_j;
  found["conclusion"] = schedule_search::Conclude(tradeoff);
  found["memory_source"] = memory.source;
  for (std::string& warning : warnings) warning = WithArgumentNames(warning);
  found["warnings"] = warnings;
  return found;
}

py::dict Ranges() {
  py::dict ranges;
  auto add = [&](const char* name, const NumberRange& range) {
    ranges[name] = py::make_tuple(range.least, range.most, range.unit);
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

std::vector<std::string_view> KindNames() {
  std::vector<std::string_view> names;
  for (auto kind = InstructionKind::kForward; kind <= InstructionKind::kGeneric;
       kind = static_cast<InstructionKind>(static_cast<int>(kind) + 1)) {
    names.push_back(Name(kind));
  }
  return names;
}

// Raises an exception with the message. The attributes of the exception have the parts of the
// error.
void Raise(PyObject* type, const Error& error) {
  // The message may contain a path with any bytes.
  const auto text = [](std::string_view part) { return py::str(OneLine(WithArgumentNames(part))); };
  const py::object exception = py::handle(type)(text(error.Message()));
  const std::string setting = error.setting();
  const auto set = [&](const char* name, bool is_known, const py::object& value) {
    exception.attr(name) = is_known ? value : py::none();
  };
  set("remedy", !error.remedy.empty(), text(error.remedy));
  set("setting", !setting.empty(), text(ArgumentOf(setting)));
  set("file", !error.where.file.empty(), text(error.where.file));
  set("line", error.where.line > 0, py::int_(error.where.line));
  PyErr_SetObject(type, exception.ptr());
}

void AddExceptions(py::module_& module) {
  // These objects exist as long as the interpreter.
  static PyObject* const input_error = PyErr_NewExceptionWithDoc(
      "perseus.Error", "The input is wrong. The message says where, and the remedy.",
      PyExc_ValueError, nullptr);
  static PyObject* const unreachable_error = PyErr_NewExceptionWithDoc(
      "perseus.UnreachableError",
      "No plan meets the target. The message says which values can be met.", input_error, nullptr);
  if (input_error == nullptr || unreachable_error == nullptr) throw py::error_already_set();
  // Raise sets these attributes. If Python itself refuses an argument, the exception has none.
  for (const char* part : {"remedy", "setting", "file", "line"}) {
    py::handle(input_error).attr(part) = py::none();
  }
  module.attr("Error") = py::handle(input_error);
  module.attr("UnreachableError") = py::handle(unreachable_error);
  py::register_exception_translator([](std::exception_ptr pending) {
    try {
      std::rethrow_exception(pending);
    } catch (const Failure& failure) {
      PyObject* type = input_error;
      if (failure.error.kind == ErrorKind::kSystem || failure.error.kind == ErrorKind::kFile) {
        type = PyExc_OSError;
      }
      if (failure.error.kind == ErrorKind::kUnreachable) type = unreachable_error;
      Raise(type, failure.error);
    }
  });
}

void AddJobSettings(py::module_& module) {
  using Limit = recipe::ChangeRules::Limit;
  py::enum_<Limit>(module, "ChangeLimit")
      .value("default", Limit::kPickShortly)
      .value("auto", Limit::kPick)
      .value("given", Limit::kGiven)
      .value("none", Limit::kNone);
  py::class_<job::JobSettings>(module, "JobSettings")
      .def(py::init<>())
      .def_readwrite("profile", &job::JobSettings::profile)
      .def_readwrite("profile_text", &job::JobSettings::profile_text)
      .def_readwrite("job_file", &job::JobSettings::job_file)
      .def_readwrite("schedule", &job::JobSettings::schedule)
      .def_readwrite("schedule_file", &job::JobSettings::schedule_file)
      .def_readwrite("graph", &job::JobSettings::graph)
      .def_readwrite("facts", &job::JobSettings::facts)
      .def_readwrite("pp_ranks", &job::JobSettings::pp_ranks)
      .def_readwrite("microbatches", &job::JobSettings::microbatches)
      .def_readwrite("chunks", &job::JobSettings::chunks)
      .def_readwrite("pipelines", &job::JobSettings::pipelines)
      .def_readwrite("gpus_per_stage", &job::JobSettings::gpus_per_stage)
      .def_readwrite("blocking_power_w", &job::JobSettings::blocking_power_w)
      .def_readwrite("switch_latency_ms", &job::JobSettings::switch_latency_ms)
      .def("set_switch_cost",
           [](job::JobSettings& settings, double stall_s, double energy_j) {
             settings.switch_cost = schedule::SwitchCost{ToNanoseconds(stall_s), energy_j};
           })
      .def_readwrite("p2p_s", &job::JobSettings::p2p_s)
      .def_readwrite("load_s", &job::JobSettings::load_s)
      .def_readwrite("all_reduce_s", &job::JobSettings::all_reduce_s)
      .def_readwrite("optimizer_s", &job::JobSettings::optimizer_s)
      .def_readwrite("max_in_flight", &job::JobSettings::max_in_flight)
      .def_property(
          "activation_mib", [](const job::JobSettings& f) { return f.memory.activation_mib; },
          [](job::JobSettings& f, std::vector<double> mib) { f.memory.activation_mib = mib; })
      .def_property(
          "kept_mib", [](const job::JobSettings& f) { return f.memory.kept_mib; },
          [](job::JobSettings& f, std::vector<double> mib) { f.memory.kept_mib = mib; })
      .def_readwrite("fold", &job::JobSettings::fold)
      .def_property(
          "limit", [](const job::JobSettings& s) { return s.changes.limit; },
          [](job::JobSettings& s, Limit limit) { s.changes.limit = limit; })
      .def_property(
          "most_changes", [](const job::JobSettings& s) { return s.changes.most_changes; },
          [](job::JobSettings& s, int most) { s.changes.most_changes = most; })
      .def_property(
          "with_tradeoff", [](const job::JobSettings& s) { return s.changes.with_tradeoff; },
          [](job::JobSettings& s, bool with) { s.changes.with_tradeoff = with; })
      .def_property(
          "memory_gib", [](const job::JobSettings& f) { return f.memory.gpu_gib; },
          [](job::JobSettings& f, std::optional<double> gib) { f.memory.gpu_gib = gib; })
      .def_property(
          "model_gib", [](const job::JobSettings& f) { return f.memory.model_gib; },
          [](job::JobSettings& f, std::vector<double> gib) { f.memory.model_gib = gib; });
}

void AddTargets(py::module_& module) {
  py::enum_<plan::Target::Kind>(module, "TargetKind")
      .value("slowdown_percent", plan::Target::Kind::kSlowdown)
      .value("deadline_s", plan::Target::Kind::kDeadline)
      .value("energy_budget_j", plan::Target::Kind::kEnergyBudget)
      .value("power_cap_w", plan::Target::Kind::kPowerCap)
      .value("least_energy", plan::Target::Kind::kMinEnergy)
      .value("least_energy_delay", plan::Target::Kind::kEdp)
      .value("price", plan::Target::Kind::kPrice);
  py::class_<PlannedTarget>(module, "PlannedTarget")
      .def_readonly("name", &PlannedTarget::slug)
      .def_property_readonly("target", [](const PlannedTarget& p) { return p.plan.target; })
      .def_property_readonly("deadline_s",
                             [](const PlannedTarget& p) { return ToSeconds(p.plan.deadline); })
      .def_property_readonly(
          "time_s", [](const PlannedTarget& p) { return ToSeconds(p.plan.evaluation.time); })
      .def_property_readonly("energy_j",
                             [](const PlannedTarget& p) { return p.plan.evaluation.energy_j; })
      .def_property_readonly("lower_bound_j",
                             [](const PlannedTarget& p) { return p.plan.lower_bound_j; })
      .def_property_readonly("gap", [](const PlannedTarget& p) { return p.plan.gap(); })
      .def_property_readonly("switches",
                             [](const PlannedTarget& p) { return p.plan.evaluation.switches; })
      .def_readonly("max_switches", &PlannedTarget::most_switches)
      .def("instructions", [](const PlannedTarget& p) { return InstructionColumns(p.file); })
      .def("knobs", [](const PlannedTarget& p) { return KnobColumns(p.file); })
      .def("to_json", [](const PlannedTarget& p) { return plan_file::FormatPlan(p.file); });
}

// Returns what each limit of clock changes saves. None if there is no trade-off.
py::object TradeoffRows(const PlanningJob& job,
                        const std::optional<recipe::SwitchTradeoff>& tradeoff) {
  if (!tradeoff) return py::none();
  const double baseline_j = job.planner.baseline().energy_j;
  py::list rows;
  for (const few_switches::BudgetPlan& limited : tradeoff->limited) {
    py::dict row;
    row["max_switches"] = limited.most_changes;
    row["saving"] = limited.plan ? py::cast(1 - limited.plan->evaluation.energy_j / baseline_j)
                                 : py::object(py::none());
    row["lower_bound_j"] = limited.lower_bound_j;
    rows.append(row);
  }
  return rows;
}

void AddJob(py::module_& module) {
  py::class_<recipe::Wishes>(module, "Wishes")
      .def(py::init<>())
      .def_readwrite("effort", &recipe::Wishes::effort)
      .def("set_noise",
           [](recipe::Wishes& w, double percent, double common_percent) {
             const auto fraction = [](double given) -> Result<double> {
               const Result<double> read = noise::FromPercent(given);
               return read ? read : Fail(read, "noise_percent");
             };
             w.noise = noise::Noise{OrThrow(fraction(percent)), OrThrow(fraction(common_percent))};
           })
      .def_readwrite("with_frontier", &recipe::Wishes::with_frontier);
  py::class_<plan::Target>(module, "Target")
      .def(py::init([](plan::Target::Kind kind, double value, double gpu_hour) {
        return plan::Target{.kind = kind, .value = value, .gpu_hour = gpu_hour};
      }));
  py::class_<PlannedTargets>(module, "PlannedTargets")
      .def_readonly("plans", &PlannedTargets::asked)
      .def("frontier", [](const PlannedTargets& planned) -> py::object {
        if (!planned.all.frontier) return py::none();
        return FrontierColumns(*planned.all.frontier);
      });
  py::class_<PlanningJob, std::shared_ptr<PlanningJob>>(module, "PlanningJob")
      .def(py::init<const job::JobSettings&>(), py::call_guard<py::gil_scoped_release>())
      .def("plan", &PlanTargets, py::call_guard<py::gil_scoped_release>())
      .def("tradeoff",
           [](const PlanningJob& job, const PlannedTargets& planned) {
             return TradeoffRows(job, planned.all.switch_tradeoff);
           })
      .def("warnings", &PlanningJob::Warnings)
      .def("schedule", [](const PlanningJob& job) { return ScheduleOf(job.job); })
      .def("baseline", [](const PlanningJob& job) {
        const plan::Evaluation& baseline = job.planner.baseline();
        return py::make_tuple(ToSeconds(baseline.time), baseline.energy_j, baseline.switches);
      });
}

}  // namespace
}  // namespace perseus

PYBIND11_MODULE(_planner, module) {
  using namespace perseus;
  module.doc() = "The planner of Perseus. Use it through the package perseus.";
  AddExceptions(module);
  AddJobSettings(module);
  AddTargets(module);
  AddJob(module);
  module.def("search_schedules", &SearchSchedules);
  module.def(
      "write_file",
      [](const std::string& path, const std::string& text) {
        OrThrow(WriteFileAtomically(path, text));
      },
      py::call_guard<py::gil_scoped_release>());
  module.def("ranges", &Ranges);
  module.def("kind_names", &KindNames);
}
