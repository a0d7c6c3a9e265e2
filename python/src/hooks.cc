#include "python/src/hooks.h"

#include <new>

namespace perseus::python {
namespace {

PyTypeObject* step_type = nullptr;
PyTypeObject* instruction_type = nullptr;

// The object of `with step():`.
struct StepObject {
  // clang-format off
  PyObject_HEAD
  SessionObject* session;  // Owned; null: the default session.
  // clang-format on
  SessionObject* entered;  // Owned.
};

// The object of `with instruction(...):`.
struct InstructionObject {
  // clang-format off
  PyObject_HEAD
  SessionObject* session;  // As above.
  // clang-format on
  SessionObject* entered;
  Instruction instruction;
};

template <typename Object>
Object* As(PyObject* object) {
  return reinterpret_cast<Object*>(object);
}
PyObject* NewReference(SessionObject* session) {
  return Py_XNewRef(reinterpret_cast<PyObject*>(session));
}

// Remembers and returns the session of the object: its own or the default one, or null.
template <typename Object>
SessionObject* Enter(Object* object) {
  SessionObject* const session = object->session != nullptr ? object->session : DefaultSession();
  Py_XSETREF(object->entered, As<SessionObject>(NewReference(session)));
  return session;
}

PyObject* EnterStep(PyObject* self, PyObject*) {
  SessionObject* const session = Enter(As<StepObject>(self));
  if (session != nullptr && !BeginStep(session)) return nullptr;
  Py_RETURN_NONE;
}

// With an exception, the step was left before its end.
PyObject* ExitStep(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (SessionObject* const session = As<StepObject>(self)->entered) {
    if (count > 0 && arguments[0] != Py_None) {
      AbandonStep(session);
    } else {
      EndStep(session);
    }
    Py_CLEAR(As<StepObject>(self)->entered);
  }
  Py_RETURN_NONE;
}

PyObject* EnterInstruction(PyObject* self, PyObject*) {
  auto* const object = As<InstructionObject>(self);
  if (object->instruction.kind < 0) Py_RETURN_NONE;
  SessionObject* const session = Enter(object);
  if (session != nullptr && !Begin(session, object->instruction)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* ExitInstruction(PyObject* self, PyObject* const*, Py_ssize_t) {
  if (SessionObject* const session = As<InstructionObject>(self)->entered) {
    End(session);
    Py_CLEAR(As<InstructionObject>(self)->entered);
  }
  Py_RETURN_NONE;
}

void DeallocateStep(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Py_XDECREF(As<StepObject>(self)->session);
  Py_XDECREF(As<StepObject>(self)->entered);
  type->tp_free(self);
  Py_DECREF(type);
}

void DeallocateInstruction(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  auto* const object = As<InstructionObject>(self);
  Py_XDECREF(object->session);
  Py_XDECREF(object->entered);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef step_methods[] = {{"__enter__", AsMethod(EnterStep), METH_NOARGS, nullptr},
                              {"__exit__", AsMethod(ExitStep), METH_FASTCALL, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyType_Slot step_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(DeallocateStep)},
                            {Py_tp_methods, step_methods},
                            {0, nullptr}};
PyType_Spec step_spec = {"perseus.Step", sizeof(StepObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, step_slots};

PyMethodDef instruction_methods[] = {
    {"__enter__", AsMethod(EnterInstruction), METH_NOARGS, nullptr},
    {"__exit__", AsMethod(ExitInstruction), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot instruction_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(DeallocateInstruction)},
                                   {Py_tp_methods, instruction_methods},
                                   {0, nullptr}};
PyType_Spec instruction_spec = {"perseus.Instruction", sizeof(InstructionObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                instruction_slots};

PyObject* StepFunction(PyObject*, PyObject*) { return MakeStep(nullptr); }
PyObject* InstructionFunction(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                              PyObject* keyword_names) {
  return MakeInstruction(nullptr, arguments, count, keyword_names);
}
// Keeps the session alive during the hook: a handler of the log may open another default session.
template <typename Hook>
bool WithDefaultSession(const Hook& hook) {
  SessionObject* const session = DefaultSession();
  if (session == nullptr) return true;
  PyObject* const held = NewReference(session);
  const bool is_done = hook(session);
  Py_DECREF(held);
  return is_done;
}

PyObject* StepBeginFunction(PyObject*, PyObject*) {
  if (!WithDefaultSession(BeginStep)) return nullptr;
  Py_RETURN_NONE;
}
PyObject* StepEndFunction(PyObject*, PyObject*) {
  if (DefaultSession() != nullptr) EndStep(DefaultSession());
  Py_RETURN_NONE;
}
PyObject* StepAbandonFunction(PyObject*, PyObject*) {
  if (DefaultSession() != nullptr) AbandonStep(DefaultSession());
  Py_RETURN_NONE;
}
PyObject* InstructionBeginFunction(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                                   PyObject* keyword_names) {
  const auto instruction = ReadInstruction(arguments, count, keyword_names);
  if (!instruction) return nullptr;
  const auto begin = [&](SessionObject* session) { return Begin(session, *instruction); };
  if (!WithDefaultSession(begin)) return nullptr;
  Py_RETURN_NONE;
}
PyObject* InstructionEndFunction(PyObject*, PyObject*) {
  if (DefaultSession() != nullptr) End(DefaultSession());
  Py_RETURN_NONE;
}

constexpr int kWithKeywords = METH_FASTCALL | METH_KEYWORDS;
PyMethodDef functions[] = {
    {"step", AsMethod(StepFunction), METH_NOARGS,
     "step()\n--\n\n"
     "Use `with perseus.step():` around one iteration: forward and backward of all "
     "microbatches.\n\n"
     "When a step begins, new plans and assignments take effect, and warnings are logged. A step "
     "that an exception leaves counts as abandoned and is not recorded. Does nothing while no "
     "session is open."},
    {"instruction", AsMethod(InstructionFunction), kWithKeywords,
     "instruction(kind, microbatch=None, chunk=0, stream=None)\n--\n\n"
     "Use `with perseus.instruction(\"forward\", microbatch=3):` around the computation of one "
     "instruction.\n\n"
     "Args:\n"
     "    kind: \"forward\", \"backward\" (the full backward), \"backward_input\", "
     "\"backward_weight\" or \"recompute\".\n"
     "    microbatch: From 0. With None, Perseus counts the microbatches of this kind and chunk in "
     "the step.\n"
     "    chunk: Which model chunk of the pp_rank, from 0. It is 0 unless the schedule is "
     "interleaved.\n"
     "    stream: The torch.cuda.Stream (or its address) of the work. Nothing waits for it.\n\n"
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
    {nullptr, nullptr, 0, nullptr}};

// Returns the microbatch of an instruction without one: the number of earlier ones of its kind.
std::int32_t CountMicrobatch(SessionObject* session, const Instruction& instruction) {
  if (instruction.chunk >= kCountedChunks) return 0;
  return session->counts[static_cast<std::size_t>(instruction.kind)]
                        [static_cast<std::size_t>(instruction.chunk)]++;
}

}  // namespace

bool Begin(SessionObject* session, const Instruction& instruction) {
  session->is_running = false;
  if (instruction.kind < 0) return true;
  const std::int32_t microbatch =
      instruction.microbatch >= 0 ? instruction.microbatch : CountMicrobatch(session, instruction);
  session->is_running = true;
  session->on_stream = instruction.on_stream;
  session->stream = instruction.stream;
  if (instruction.on_stream) {
    perseus_instruction_begin_on(session->handle.get(), instruction.kind, microbatch,
                                 instruction.chunk, instruction.stream);
  } else {
    perseus_instruction_begin(session->handle.get(), instruction.kind, microbatch,
                              instruction.chunk);
  }
  return true;
}

void End(SessionObject* session) {
  if (!session->is_running) return;
  session->is_running = false;
  if (session->on_stream) {
    perseus_instruction_end_on(session->handle.get(), session->stream);
  } else {
    perseus_instruction_end(session->handle.get());
  }
}

bool BeginStep(SessionObject* session) {
  session->counts = {};
  perseus_step_begin(session->handle.get());
  return LogWarnings(session);
}

void EndStep(SessionObject* session) { perseus_step_end(session->handle.get()); }
void AbandonStep(SessionObject* session) { perseus_step_abandon(session->handle.get()); }

PyObject* MakeStep(SessionObject* session) {
  PyObject* const step = step_type->tp_alloc(step_type, 0);
  if (step != nullptr) As<StepObject>(step)->session = As<SessionObject>(NewReference(session));
  return step;
}

PyObject* MakeInstruction(SessionObject* session, PyObject* const* arguments, Py_ssize_t count,
                          PyObject* keyword_names) {
  const auto instruction = ReadInstruction(arguments, count, keyword_names);
  if (!instruction) return nullptr;
  PyObject* const object = instruction_type->tp_alloc(instruction_type, 0);
  if (object == nullptr) return nullptr;
  As<InstructionObject>(object)->session = As<SessionObject>(NewReference(session));
  As<InstructionObject>(object)->instruction = *instruction;
  return object;
}

bool AddHooks(PyObject* module) {
  step_type = As<PyTypeObject>(PyType_FromSpec(&step_spec));
  instruction_type = As<PyTypeObject>(PyType_FromSpec(&instruction_spec));
  return step_type != nullptr && instruction_type != nullptr &&
         PyModule_AddType(module, step_type) == 0 &&
         PyModule_AddType(module, instruction_type) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace perseus::python
