#include "python/src/hooks.h"

#include "python/src/torch_device.h"

namespace perseus::python {
namespace {

PyTypeObject* step_type = nullptr;
PyTypeObject* instruction_type = nullptr;

// The object of `with step():` and of `with instruction(...):`.
struct HookObject {
  // clang-format off
  PyObject_HEAD
  SessionObject* session;  // Owned. Null: the default session.
  // clang-format on
  SessionObject* entered;   // Owned.
  Instruction instruction;  // Not used for a step.
};

template <typename Object>
Object* As(PyObject* object) {
  return reinterpret_cast<Object*>(object);
}
PyObject* NewReference(SessionObject* session) {
  return Py_XNewRef(reinterpret_cast<PyObject*>(session));
}

// Returns the microbatch of an instruction that has none: the number of earlier instructions of its
// kind.
std::int32_t CountMicrobatch(SessionObject* session, const Instruction& instruction) {
  if (instruction.chunk >= kCountedChunks) return 0;
  return session->counts[static_cast<std::size_t>(instruction.kind)]
                        [static_cast<std::size_t>(instruction.chunk)]++;
}

// Refuses a hook that begins while another thread is in a call on a stream.
bool RefuseSecondThread() {
  return WarnOnce(
      "two threads use one session at the same time; Perseus ignores the calls of the second one "
      "(open a session for each thread)");
}

// Calls a function of the library that enqueues on a stream. The call waits while the stream's
// queue of launches is full. The queue is full for as long as the GPU waits for another rank.
// During this time, other threads of Python have to run, and so do host functions of the program on
// the stream. A host function may need the lock of the interpreter. If the call kept the lock, it
// would never return.
//
// No function says whether the queue is full, so each call releases the lock. The release costs 45
// ns. Suppose another thread computes in Python all the time. Then an instruction takes 0.5 to 0.8
// ms (begin and end together). This is about as much as one torch.add (0.5 ms), which releases the
// lock, too. An instruction has many such operations. With the lock held, one call on a full queue
// stopped all other threads for 1.0 s, as long as the queue was full.
template <typename Call>
void CallOnStream(SessionObject* session, const Call& call) {
  std::shared_ptr<perseus_session> handle = session->handle;
  Py_BEGIN_ALLOW_THREADS;
  call(handle.get());
  handle.reset();  // This may close the session, and closing waits.
  Py_END_ALLOW_THREADS;
}

constexpr const char* kNotOnDevice =
    "instruction: the device of the stream cannot be made the current one; Perseus ignores such "
    "instructions";
constexpr const char* kRocm =
    "instructions on streams of ROCm cannot be timed; only whole steps are recorded, and no plan "
    "applies";

// Makes the device of the stream the current device, and calls a function of the library. Keeps the
// session alive, because other threads run during the call. Returns false if Python's error is set.
template <typename Call>
bool CallOnDevice(SessionObject* session, const Call& call) {
  PyObject* const held = NewReference(session);
  // torch runs Python code, so other threads may run from here on.
  session->is_in_call = true;
  CurrentDevice device(session->device);
  const bool is_current = device.is_current();
  if (is_current) {
    CallOnStream(session, call);
  } else {
    session->is_running = false;
    perseus_instruction_end(session->handle.get());  // Drops an instruction that has begun.
  }
  const bool is_restored = device.Restore();
  session->is_in_call = false;
  Py_DECREF(held);
  return is_restored && (is_current || WarnOnce(kNotOnDevice));
}

// Begins an instruction. Returns false if Python's error is set.
bool Begin(SessionObject* session, const Instruction& instruction) {
  if (session->is_in_call) return RefuseSecondThread();
  session->is_running = false;
  if (instruction.kind < 0) return true;
  const std::int32_t microbatch =
      instruction.microbatch >= 0 ? instruction.microbatch : CountMicrobatch(session, instruction);
  session->on_stream = instruction.on_stream;
  session->stream = instruction.stream;
  session->device = instruction.device;
  if (instruction.on_stream && IsTorchForRocm()) return WarnOnce(kRocm);
  session->is_running = true;
  if (instruction.on_stream) {
    return CallOnDevice(session, [&](perseus_session* handle) {
      perseus_instruction_begin_on(handle, instruction.kind, microbatch, instruction.chunk,
                                   instruction.stream);
    });
  }
  perseus_instruction_begin(session->handle.get(), instruction.kind, microbatch, instruction.chunk);
  return true;
}

bool End(SessionObject* session) {
  if (session->is_in_call) return RefuseSecondThread();
  if (!session->is_running) return true;
  session->is_running = false;
  if (session->on_stream) {
    return CallOnDevice(session, [stream = session->stream](perseus_session* handle) {
      perseus_instruction_end_on(handle, stream);
    });
  }
  perseus_instruction_end(session->handle.get());
  return true;
}

// Calls perseus_wait_begin or perseus_wait_end within an instruction.
template <void (*kCall)(perseus_session*)>
bool Wait(SessionObject* session) {
  if (session->is_in_call || !session->is_running) return true;
  if (session->on_stream) return CallOnDevice(session, kCall);
  kCall(session->handle.get());
  return true;
}

bool BeginStep(SessionObject* session) {
  if (session->is_in_call) return RefuseSecondThread();
  session->counts = {};
  perseus_step_begin(session->handle.get());
  return LogWarnings(session);
}

bool EndStep(SessionObject* session) {
  if (session->is_in_call) return RefuseSecondThread();
  perseus_step_end(session->handle.get());
  return true;
}
// Ends a step that training left before its end.
bool AbandonStep(SessionObject* session) {
  if (session->is_in_call) return RefuseSecondThread();
  perseus_step_abandon(session->handle.get());
  return true;
}

// Stores and returns the session of the object: its own session, or the default session. May return
// null.
SessionObject* Enter(HookObject* object) {
  SessionObject* const session = object->session != nullptr ? object->session : DefaultSession();
  Replace(object->entered, NewReference(session));
  return session;
}

PyObject* EnterStep(PyObject* self, PyObject*) {
  SessionObject* const session = Enter(As<HookObject>(self));
  if (session != nullptr && !BeginStep(session)) return nullptr;
  Py_RETURN_NONE;
}

// If there is an exception, the step was left before its end.
PyObject* ExitStep(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (SessionObject* const session = As<HookObject>(self)->entered) {
    const bool has_failed = count > 0 && arguments[0] != Py_None;
    const bool is_done = has_failed ? AbandonStep(session) : EndStep(session);
    Py_CLEAR(As<HookObject>(self)->entered);
    if (!is_done) return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* EnterInstruction(PyObject* self, PyObject*) {
  auto* const object = As<HookObject>(self);
  if (object->instruction.kind < 0) Py_RETURN_NONE;
  SessionObject* const session = Enter(object);
  if (session != nullptr && !Begin(session, object->instruction)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* ExitInstruction(PyObject* self, PyObject* const*, Py_ssize_t) {
  if (SessionObject* const session = As<HookObject>(self)->entered) {
    const bool is_done = End(session);
    Py_CLEAR(As<HookObject>(self)->entered);
    if (!is_done) return nullptr;
  }
  Py_RETURN_NONE;
}

void DeallocateHook(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Py_XDECREF(As<HookObject>(self)->session);
  Py_XDECREF(As<HookObject>(self)->entered);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyMethodDef step_methods[] = {{"__enter__", AsMethod(EnterStep), METH_NOARGS, nullptr},
                              {"__exit__", AsMethod(ExitStep), METH_FASTCALL, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyType_Slot step_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(DeallocateHook)},
                            {Py_tp_methods, step_methods},
                            {0, nullptr}};
PyType_Spec step_spec = {"perseus.Step", sizeof(HookObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, step_slots};

PyMethodDef instruction_methods[] = {
    {"__enter__", AsMethod(EnterInstruction), METH_NOARGS, nullptr},
    {"__exit__", AsMethod(ExitInstruction), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot instruction_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(DeallocateHook)},
                                   {Py_tp_methods, instruction_methods},
                                   {0, nullptr}};
PyType_Spec instruction_spec = {"perseus.Instruction", sizeof(HookObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                instruction_slots};

// ---- The functions of the module, which are methods of a session, too ----

// Calls the hook with the session. If `self` is the module, uses the default session. Keeps the
// session alive, because a handler of the log may open another default session.
template <typename Hook>
PyObject* WithSession(PyObject* self, const Hook& hook) {
  SessionObject* const session = IsSession(self) ? As<SessionObject>(self) : DefaultSession();
  if (session == nullptr) Py_RETURN_NONE;
  PyObject* const held = NewReference(session);
  const bool is_done = hook(session);
  Py_DECREF(held);
  if (!is_done) return nullptr;
  Py_RETURN_NONE;
}

// Returns the object of `with`. An object of the module uses the default session at the time of the
// `with`.
PyObject* MakeHook(PyTypeObject* type, PyObject* self, const Instruction& instruction) {
  PyObject* const object = PyType_GenericAlloc(type, 0);
  if (object == nullptr) return nullptr;
  if (IsSession(self)) As<HookObject>(object)->session = As<SessionObject>(Py_NewRef(self));
  As<HookObject>(object)->instruction = instruction;
  return object;
}

PyObject* StepFunction(PyObject* self, PyObject*) { return MakeHook(step_type, self, {}); }
PyObject* InstructionFunction(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                              PyObject* keyword_names) {
  const auto instruction = ReadInstruction(arguments, count, keyword_names);
  return instruction ? MakeHook(instruction_type, self, *instruction) : nullptr;
}
PyObject* StepBeginFunction(PyObject* self, PyObject*) { return WithSession(self, BeginStep); }
PyObject* StepEndFunction(PyObject* self, PyObject*) { return WithSession(self, EndStep); }
PyObject* StepAbandonFunction(PyObject* self, PyObject*) { return WithSession(self, AbandonStep); }
PyObject* InstructionBeginFunction(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                                   PyObject* keyword_names) {
  const auto instruction = ReadInstruction(arguments, count, keyword_names);
  if (!instruction) return nullptr;
  return WithSession(self, [&](SessionObject* session) { return Begin(session, *instruction); });
}
PyObject* InstructionEndFunction(PyObject* self, PyObject*) { return WithSession(self, End); }
PyObject* WaitBeginFunction(PyObject* self, PyObject*) {
  return WithSession(self, Wait<perseus_wait_begin>);
}
PyObject* WaitEndFunction(PyObject* self, PyObject*) {
  return WithSession(self, Wait<perseus_wait_end>);
}

constexpr int kWithKeywords = METH_FASTCALL | METH_KEYWORDS;
PyMethodDef functions[] = {
    {"step", AsMethod(StepFunction), METH_NOARGS,
     "step()\n--\n\n"
     "Use `with perseus.step():`, or step() of a session, around one iteration: forward and "
     "backward of all microbatches.\n\n"
     "When a step begins, new plans and assignments take effect, and warnings are logged. A step "
     "that an exception leaves counts as abandoned and is not recorded. Does nothing while no "
     "session is open."},
    {"instruction", AsMethod(InstructionFunction), kWithKeywords,
     "instruction(kind, microbatch=None, chunk=0, stream=None)\n--\n\n"
     "Use `with perseus.instruction(\"forward\", microbatch=3):`, or instruction() of a session, "
     "around the computation of one instruction.\n\n"
     "Args:\n"
     "    kind: \"forward\", \"backward\" (the full backward), \"backward_input\", "
     "\"backward_weight\" or \"recompute\".\n"
     "    microbatch: From 0. With None, Perseus counts the microbatches of this kind and chunk in "
     "the step.\n"
     "    chunk: Which model chunk of the pp_rank, from 0. It is 0 unless the schedule is "
     "interleaved.\n"
     "    stream: The torch.cuda.Stream (or its address) of the work. Nothing waits for it. "
     "Without it, the hooks time the calling thread, which on a GPU only launches the work.\n\n"
     "Never raises: wrong arguments are a warning, once for each cause. Does nothing while no "
     "session is open, or outside of a step."},
    {"step_begin", AsMethod(StepBeginFunction), METH_NOARGS,
     "step_begin()\n--\n\nBegins a step, for code with separate hooks before and after (see "
     "step)."},
    {"step_end", AsMethod(StepEndFunction), METH_NOARGS,
     "step_end()\n--\n\nEnds the step (see step_begin)."},
    {"step_abandon", AsMethod(StepAbandonFunction), METH_NOARGS,
     "step_abandon()\n--\n\nInstead of step_end, if training leaves the step before its end: the "
     "step counts as abandoned and is not recorded."},
    {"instruction_begin", AsMethod(InstructionBeginFunction), kWithKeywords,
     "instruction_begin(kind, microbatch=None, chunk=0, stream=None)\n--\n\n"
     "Begins an instruction, for code with separate hooks before and after (see instruction)."},
    {"instruction_end", AsMethod(InstructionEndFunction), METH_NOARGS,
     "instruction_end()\n--\n\nEnds the instruction that began last, on the same stream."},
    {"wait_begin", AsMethod(WaitBeginFunction), METH_NOARGS,
     "wait_begin()\n--\n\nCall it within an instruction, before the GPU waits for other ranks on "
     "the "
     "stream of the instruction. The time until wait_end() does not count as work."},
    {"wait_end", AsMethod(WaitEndFunction), METH_NOARGS,
     "wait_end()\n--\n\nEnds what wait_begin() began."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddHooks(PyObject* module, PyTypeObject* session) {
  step_type = As<PyTypeObject>(PyType_FromSpec(&step_spec));
  instruction_type = As<PyTypeObject>(PyType_FromSpec(&instruction_spec));
  if (step_type == nullptr || instruction_type == nullptr) return false;
  for (PyMethodDef* function = functions; function->ml_name != nullptr; ++function) {
    PyObject* const method = PyDescr_NewMethod(session, function);
    if (method == nullptr) return false;
    const int status =
        PyObject_SetAttrString(reinterpret_cast<PyObject*>(session), function->ml_name, method);
    Py_DECREF(method);
    if (status != 0) return false;
  }
  return PyModule_AddType(module, step_type) == 0 &&
         PyModule_AddType(module, instruction_type) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace perseus::python
