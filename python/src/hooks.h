// The hot half of the package: a session, and the hooks around steps and instructions.
//
// In C++ against Python's own interface: a hook is called for every instruction of a training step.
//
// No hook ever raises, whatever it is given: what is wrong is told through logging, once a cause,
// and the hook then does nothing. (Only what a user means to raise passes: KeyboardInterrupt while
// a warning is logged.) All runs under Python's lock, which is what guards the globals.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "perseus.h"

namespace perseus::python {

inline constexpr int kKinds = 5;
// Of chunks above it, an instruction without a microbatch is not counted.
inline constexpr int kCountedChunks = 32;

struct SessionObject {
  // clang-format off
  PyObject_HEAD
  perseus_session* handle;  // Null once closed.
  // clang-format on
  perseus_counters last_counters;  // Once closed.
  std::uint64_t warnings_logged;
  std::array<char, 48> name;  // "dp0-pp3-tp0": of which rank a warning is.
  // Microbatches so far in this step, for instructions that do not say theirs.
  std::array<std::array<std::int32_t, kCountedChunks>, kKinds> counts;
  bool is_running;  // Between an instruction's begin and its end.
  bool on_stream;   // Whether the instruction that runs was begun on one, and on which.
  void* stream;
};

// What an instruction was told.
struct Instruction {
  int kind = -1;                 // -1: something was wrong, so it is none.
  std::int32_t microbatch = -1;  // -1: counted.
  std::int32_t chunk = 0;
  bool on_stream = false;
  void* stream = nullptr;
  // Names of a decorated function's arguments in place of numbers; borrowed.
  PyObject* microbatch_name = nullptr;
  PyObject* chunk_name = nullptr;
};

// Positional and keyword arguments as a METH_FASTCALL | METH_KEYWORDS function has them. Nothing if
// Python's error is set: KeyboardInterrupt, no other.
std::optional<Instruction> ReadInstruction(PyObject* const* arguments, Py_ssize_t count,
                                           PyObject* keyword_names);

// False if Python's error is set.
bool Begin(SessionObject* session, const Instruction& instruction);
void End(SessionObject* session);
bool BeginStep(SessionObject* session);
void EndStep(SessionObject* session);

// Tells logging, once a cause ever. False if Python's error is set (KeyboardInterrupt).
bool WarnOnce(const char* cause, const char* message);
// Of an open session as of now, of a closed one as of its end.
perseus_counters ReadCounters(const SessionObject* session);
// Logs what the session has to say. False likewise.
bool LogWarnings(SessionObject* session);

// What is opened last, until it is closed; borrowed, may be null.
SessionObject* DefaultSession();

// Add their types and functions to the module. False if Python's error is set.
bool AddSession(PyObject* module);
bool AddHooks(PyObject* module);
bool PrepareReading();  // Of ReadInstruction.

// `with session.step():` and `with session.instruction(...):`; null session: the default one,
// looked up when it is entered.
PyObject* MakeStep(SessionObject* session);
PyObject* MakeInstruction(SessionObject* session, PyObject* const* arguments, Py_ssize_t count,
                          PyObject* keyword_names);

// The package's helpers in Python (borrowed, null until they are set): log(message) and
// decorate(make, kind, microbatch, chunk, stream, function).
PyObject* Logger();
PyObject* Decorator();

// Python keeps every kind of function as one type of pointer.
template <typename Function>
PyCFunction AsMethod(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace perseus::python
