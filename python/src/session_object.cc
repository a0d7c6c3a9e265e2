#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/src/hooks.h"

namespace perseus::python {
namespace {

constexpr std::size_t kLongestWarning = 4096;

PyTypeObject* counters_type = nullptr;
PyTypeObject* costs_type = nullptr;
PyTypeObject* session_type = nullptr;
SessionObject* default_session = nullptr;  // Owned.
PyObject* log_function = nullptr;
// The open sessions, borrowed. atexit closes them.
std::vector<SessionObject*>& OpenSessions() {
  static std::vector<SessionObject*> sessions;
  return sessions;
}

SessionObject* AsSession(PyObject* object) { return reinterpret_cast<SessionObject*>(object); }

// Handles Python's error. Returns false if the error must pass to the caller (KeyboardInterrupt and
// similar errors). Reports any other error as unraisable, and clears it.
bool Swallow(PyObject* where) {
  if (PyErr_Occurred() == nullptr) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_WriteUnraisable(where);
  return true;
}

// Names the rank in each line, because all ranks of a node may share a terminal.
bool Log(const SessionObject* session, const char* message) {
  if (log_function == nullptr) return true;
  const std::string whose = session == nullptr ? "" : session->name.data() + std::string(": ");
  const std::string line = whose + message;
  PyObject* const text =
      PyUnicode_DecodeUTF8(line.data(), static_cast<Py_ssize_t>(line.size()), "replace");
  PyObject* const result =
      text == nullptr ? nullptr : PyObject_CallFunctionObjArgs(log_function, text, nullptr);
  Py_XDECREF(text);
  Py_XDECREF(result);
  return Swallow(log_function);
}

void Close(SessionObject* session) {
  if (session->handle == nullptr) return;
  session->last_counters = ReadCounters(session);
  std::shared_ptr<perseus_session> handle = std::exchange(session->handle, nullptr);
  std::erase(OpenSessions(), session);
  Py_BEGIN_ALLOW_THREADS;
  handle.reset();
  Py_END_ALLOW_THREADS;
}

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* const kNames[] = {
      "dp_rank", "pp_rank", "tp_rank",         "gpu",    "job",      "job_directory", "plan",
      "agent",   "devices", "plan_expires_at", "stages", "pp_ranks", nullptr};
  perseus_options options = PERSEUS_OPTIONS_INIT;
  long long expires = 0;
  if (PyArg_ParseTupleAndKeywords(
          arguments, keywords, "|$iiizzzzzzLzi:Session", const_cast<char**>(kNames),
          &options.dp_rank, &options.pp_rank, &options.tp_rank, &options.gpu, &options.job,
          &options.job_directory, &options.plan, &options.agent, &options.devices, &expires,
          &options.stages, &options.pp_ranks) == 0) {
    return nullptr;
  }
  options.plan_expires_at = expires;
  options.flags = PERSEUS_QUIET;                                  // The logger prints warnings.
  auto* const session = AsSession(PyType_GenericAlloc(type, 0));  // All bytes are zero.
  if (session == nullptr) return nullptr;
  perseus_session* opened = nullptr;
  Py_BEGIN_ALLOW_THREADS;
  opened = perseus_open(&options);
  Py_END_ALLOW_THREADS;
  std::construct_at(&session->handle, opened, perseus_close);
  std::snprintf(session->name.data(), session->name.size(), "dp%d-pp%d-tp%d", options.dp_rank,
                options.pp_rank, options.tp_rank);
  if (opened != nullptr) OpenSessions().push_back(session);
  constexpr const char* kNoSession =
      "no session can be opened (is memory exhausted?); nothing is set or recorded, and training "
      "goes on";
  if (opened == nullptr ? !Log(session, kNoSession) : !LogWarnings(session)) {
    Py_DECREF(session);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(session);
}

void Deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Close(AsSession(self));
  std::destroy_at(&AsSession(self)->handle);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* CloseMethod(PyObject* self, PyObject*) {
  SessionObject* const session = AsSession(self);
  const bool logged = LogWarnings(session);
  if (session == default_session) Py_CLEAR(default_session);
  Close(session);
  if (!logged) return nullptr;
  Py_RETURN_NONE;
}

PyObject* EnterMethod(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* ExitMethod(PyObject* self, PyObject* const*, Py_ssize_t) {
  return CloseMethod(self, nullptr);
}

PyObject* UsePlanMethod(PyObject* self, PyObject* path) {
  PyObject* bytes = nullptr;  // Owned. A string or an os.PathLike, in the encoding of the system.
  if (path != Py_None && PyUnicode_FSConverter(path, &bytes) == 0) return nullptr;
  const char* const text = bytes == nullptr ? nullptr : PyBytes_AsString(bytes);
  // Keeps the session alive while another thread closes it, or while the interpreter exits.
  std::shared_ptr<perseus_session> handle = AsSession(self)->handle;
  int status = -1;
  Py_BEGIN_ALLOW_THREADS;
  status = perseus_use_plan(handle.get(), text);
  handle.reset();  // This may close the session, and closing waits.
  Py_END_ALLOW_THREADS;
  Py_XDECREF(bytes);
  if (!LogWarnings(AsSession(self))) return nullptr;
  return PyBool_FromLong(status == 0 ? 1 : 0);
}

PyStructSequence_Field counter_fields[] = {
    {"steps", "Steps that ended."},
    {"steps_off_plan", "Steps whose order of instructions differed from the plan."},
    {"instructions", "Instructions that ended."},
    {"clock_requests", "Clock requests to the agent."},
    {"clocks_limited",
     "Requests that were accepted, but power, temperature or the lock of another program holds the "
     "GPU at another clock."},
    {"clocks_refused", "Requests that were not accepted."},
    {"agent_losses", "Lost connections to the agent."},
    {"records_dropped", "Instructions that were not recorded, because the buffer was full."},
    {"stream_failures", "Calls of the CUDA driver that failed."},
    {"warnings", "Warnings so far."},
    {"may_set_clocks", "True while this process has a lease."},
    {"follows_plan", "True if the current step follows a plan."},
    {"plan_version", "Version of the assignment in force; 0: none."},
    {"steps_abandoned", "Steps that training left before their end. They are not in steps."},
    {"changes_skipped", "Changes to a lower clock that waited for the limit of the agent."},
    {nullptr, nullptr}};
PyStructSequence_Desc counters_description = {"perseus.Counters",
                                              "Numbers of what happened so far.", counter_fields,
                                              static_cast<int>(std::size(counter_fields)) - 1};

PyObject* GetCounters(PyObject* self, void*) {
  const perseus_counters now = ReadCounters(AsSession(self));
  PyObject* const counters = PyStructSequence_New(counters_type);
  if (counters == nullptr) return nullptr;
  Py_ssize_t i = 0;
  for (const std::uint64_t count :
       {now.steps, now.steps_off_plan, now.instructions, now.clock_requests, now.clocks_limited,
        now.clocks_refused, now.agent_losses, now.records_dropped, now.stream_failures,
        now.warnings}) {
    PyStructSequence_SetItem(counters, i++, PyLong_FromUnsignedLongLong(count));
  }
  PyStructSequence_SetItem(counters, i++, PyBool_FromLong(now.may_set_clocks));
  PyStructSequence_SetItem(counters, i++, PyBool_FromLong(now.follows_plan));
  PyStructSequence_SetItem(counters, i++, PyLong_FromLongLong(now.plan_version));
  PyStructSequence_SetItem(counters, i++, PyLong_FromUnsignedLongLong(now.steps_abandoned));
  PyStructSequence_SetItem(counters, i++, PyLong_FromUnsignedLongLong(now.changes_skipped));
  if (PyErr_Occurred() != nullptr) {
    Py_DECREF(counters);
    return nullptr;
  }
  return counters;
}

PyStructSequence_Field cost_fields[] = {
    {"steps", "Steps with known times."},
    {"steps_on_plan", "Of these, the steps that ran a plan at its clocks."},
    {"step_time_s", "Median time from step to step, of the last 30 s. 0: unknown."},
    {"power_w", "Mean power of the GPU in these steps. 0: unknown."},
    {"energy_j", "Energy of the GPU since the session began to measure. 0: unknown."},
    {nullptr, nullptr}};
PyStructSequence_Desc costs_description = {"perseus.Costs", "What the steps cost lately.",
                                           cost_fields,
                                           static_cast<int>(std::size(cost_fields)) - 1};

PyObject* GetCosts(PyObject* self, void*) {
  perseus_costs now{};
  now.size = sizeof now;
  perseus_read_costs(AsSession(self)->handle.get(), &now);
  PyObject* const costs = PyStructSequence_New(costs_type);
  if (costs == nullptr) return nullptr;
  Py_ssize_t i = 0;
  for (const std::uint64_t count : {now.steps, now.steps_on_plan}) {
    PyStructSequence_SetItem(costs, i++, PyLong_FromUnsignedLongLong(count));
  }
  for (const double quantity : {now.step_time_s, now.power_w, now.energy_j}) {
    PyStructSequence_SetItem(costs, i++, PyFloat_FromDouble(quantity));
  }
  if (PyErr_Occurred() == nullptr) return costs;
  Py_DECREF(costs);
  return nullptr;
}

PyObject* GetRank(PyObject* self, void*) {
  return PyUnicode_FromString(AsSession(self)->name.data());
}

PyObject* GetIsOpen(PyObject* self, void*) {
  return PyBool_FromLong(AsSession(self)->handle != nullptr ? 1 : 0);
}

PyMethodDef session_methods[] = {
    {"use_plan", AsMethod(UsePlanMethod), METH_O,
     "use_plan(path)\n--\n\nFollows this plan file from the next step on. With None, follows no "
     "plan.\n\nReturns False if the file has no plan for this rank. Then a warning says why, and "
     "the "
     "previous plan stays in force."},
    {"close", AsMethod(CloseMethod), METH_NOARGS,
     "close()\n--\n\nReturns the GPU to the agent and writes the record. Waits at most one "
     "second. If another thread is in use_plan, the session closes when that returns."},
    {"__enter__", AsMethod(EnterMethod), METH_NOARGS, nullptr},
    {"__exit__", AsMethod(ExitMethod), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef session_properties[] = {
    {"counters", GetCounters, nullptr, "Numbers of what happened so far: perseus.Counters.",
     nullptr},
    {"costs", GetCosts, nullptr, "What the steps cost lately: perseus.Costs.", nullptr},
    {"rank", GetRank, nullptr, "The rank of the job, such as \"dp0-pp3-tp0\".", nullptr},
    {"is_open", GetIsOpen, nullptr, "False after close.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot session_slots[] = {
    {Py_tp_doc, const_cast<char*>("One rank of a job. perseus.open() makes it.")},
    {Py_tp_new, reinterpret_cast<void*>(New)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate)},
    {Py_tp_methods, session_methods},
    {Py_tp_getset, session_properties},
    {0, nullptr}};
PyType_Spec session_spec = {"perseus.Session", sizeof(SessionObject), 0, Py_TPFLAGS_DEFAULT,
                            session_slots};

PyObject* SetDefault(PyObject*, PyObject* session) {
  if (!IsSession(session)) {
    PyErr_SetString(PyExc_TypeError, "not a Session");
    return nullptr;
  }
  Replace(default_session, Py_NewRef(session));
  Py_RETURN_NONE;
}

// The argument says whether the program has failed. Then the sessions end within a step: to the
// library, such a training has not ended in order.
PyObject* CloseAll(PyObject*, PyObject* has_failed) {
  while (!OpenSessions().empty()) {
    PyObject* const session = Py_NewRef(reinterpret_cast<PyObject*>(OpenSessions().back()));
    if (has_failed == Py_True) {
      perseus_session* const handle = OpenSessions().back()->handle.get();
      perseus_step_abandon(handle);
      perseus_step_begin(handle);
    }
    PyObject* const closed = CloseMethod(session, nullptr);
    Py_DECREF(session);
    if (closed == nullptr) return nullptr;
    Py_DECREF(closed);
  }
  Py_RETURN_NONE;
}

// Other threads may close sessions meanwhile, so this holds the sessions of the library.
PyObject* ReleaseClocks(PyObject*, PyObject*) {
  std::vector<std::shared_ptr<perseus_session>> handles;
  for (const SessionObject* session : OpenSessions()) handles.push_back(session->handle);
  Py_BEGIN_ALLOW_THREADS;
  for (const auto& handle : handles) perseus_release_clock(handle.get());
  handles.clear();  // This may close a session, and closing waits.
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject* NewestSession(PyObject*, PyObject*) {
  if (OpenSessions().empty()) Py_RETURN_NONE;
  return Py_NewRef(reinterpret_cast<PyObject*>(OpenSessions().back()));
}

PyObject* SetLog(PyObject*, PyObject* log) {
  Replace(log_function, Py_NewRef(log));
  Py_RETURN_NONE;
}

PyMethodDef module_functions[] = {{"set_default", AsMethod(SetDefault), METH_O, nullptr},
                                  {"close_all", AsMethod(CloseAll), METH_O, nullptr},
                                  {"release_clocks", AsMethod(ReleaseClocks), METH_NOARGS, nullptr},
                                  {"newest_session", AsMethod(NewestSession), METH_NOARGS, nullptr},
                                  {"set_log", AsMethod(SetLog), METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};

}  // namespace

SessionObject* DefaultSession() { return default_session; }
bool IsSession(PyObject* object) { return PyObject_TypeCheck(object, session_type) != 0; }

bool WarnOnce(const char* message) {
  // The messages are literals of this library, so the list cannot grow without limit.
  static std::vector<std::string>& logged = *new std::vector<std::string>;
  if (std::find(logged.begin(), logged.end(), message) != logged.end()) return true;
  logged.emplace_back(message);
  return Log(default_session, message);
}

perseus_counters ReadCounters(const SessionObject* session) {
  if (session->handle == nullptr) return session->last_counters;
  perseus_counters now{};
  now.size = sizeof now;
  perseus_read_counters(session->handle.get(), &now);
  return now;
}

bool LogWarnings(SessionObject* session) {
  if (session->handle == nullptr) return true;
  const std::uint64_t warnings = ReadCounters(session).warnings;
  if (warnings == session->warnings_logged) return true;
  session->warnings_logged = warnings;
  char text[kLongestWarning];
  while (perseus_take_warning(session->handle.get(), text, sizeof text) > 0) {
    if (!Log(session, text)) return false;
  }
  return true;
}

bool AddSession(PyObject* module) {
  counters_type = PyStructSequence_NewType(&counters_description);
  costs_type = PyStructSequence_NewType(&costs_description);
  session_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&session_spec));
  return counters_type != nullptr && costs_type != nullptr && session_type != nullptr &&
         PyModule_AddType(module, counters_type) == 0 &&
         PyModule_AddType(module, costs_type) == 0 && PyModule_AddType(module, session_type) == 0 &&
         PyModule_AddFunctions(module, module_functions) == 0 && AddHooks(module, session_type);
}

}  // namespace perseus::python
