// The session, and the hooks around steps and instructions. A training step calls a hook for every
// instruction. So the hooks are written in C++, with the C API of Python.
//
// A hook never raises an exception, whatever its arguments are. It logs a warning once for each
// cause, and then does nothing. Exception: a KeyboardInterrupt during the logging of a warning is
// raised.
//
// Thread safety: all code runs under Python's global interpreter lock, which guards the globals and
// the objects. Some calls release this lock. The calls open, use_plan and close may wait for files
// or for the agent. The calls that enqueue on a stream may wait in the CUDA driver, while the
// stream's queue of launches is full. While the lock is released, other threads may run any code in
// these files, and may close the session. So during this time, the call changes no object of
// Python, and holds a reference to the library's session. If a hook begins in another thread during
// this time, it does nothing.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "perseus.h"

namespace perseus::python {

inline constexpr int kKinds = 6;
// Chunks from this number on have no counter. In such a chunk, an instruction without a microbatch
// has the number 0.
inline constexpr int kCountedChunks = 32;

struct SessionObject {
  // clang-format off
  PyObject_HEAD
  // Null after close. When the last reference ends, the session of the library closes.
  std::shared_ptr<perseus_session> handle;
  // clang-format on
  perseus_counters last_counters;  // The counters at close.
  std::uint64_t warnings_logged;
  std::array<char, 48> name;  // "dp0-pp3-tp0": the rank, in front of each warning.
  // The number of microbatches so far in this step, for instructions without a microbatch.
  std::array<std::array<std::int32_t, kCountedChunks>, kKinds> counts;
  bool is_running;  // Between the begin and the end of an instruction.
  bool on_stream;   // Whether that instruction began on a stream.
  void* stream;
  int device;  // The number of the device of the stream. -1: the current device.
  // A thread is in a call on a stream, and has released the lock of the interpreter.
  bool is_in_call;
};

// The arguments of an instruction.
struct Instruction {
  int kind = -1;                 // -1: an argument was wrong, so hooks ignore the instruction.
  std::int32_t microbatch = -1;  // -1: the hook counts microbatches.
  std::int32_t chunk = 0;
  bool on_stream = false;
  void* stream = nullptr;
  int device = -1;  // The number of the device of the stream. -1: the current device.
};

// Reads the positional and keyword arguments of a METH_FASTCALL | METH_KEYWORDS function. Returns
// nullopt only if Python's error is set (KeyboardInterrupt).
std::optional<Instruction> ReadInstruction(PyObject* const* arguments, Py_ssize_t count,
                                           PyObject* keyword_names);

// Logs this warning once in this process. Returns false if Python's error is set
// (KeyboardInterrupt).
bool WarnOnce(const char* message);
// Returns the current counters of an open session, or the last counters of a closed session.
perseus_counters ReadCounters(const SessionObject* session);
// Logs the new warnings of the session. Returns false if Python's error is set.
bool LogWarnings(SessionObject* session);

// Returns the session that was opened last, or null if this session is closed. The reference is
// borrowed.
SessionObject* DefaultSession();
bool IsSession(PyObject* object);

// These functions add their types and functions to the module. The functions of the hooks are also
// methods of the type of sessions. Return false if Python's error is set.
bool AddSession(PyObject* module);
bool AddHooks(PyObject* module, PyTypeObject* session);
bool PrepareReading();  // Needed before ReadInstruction. Returns false if Python's error is set.

// Replaces an owned reference.
template <typename Object>
void Replace(Object*& place, PyObject* owned) {
  PyObject* const old =
      reinterpret_cast<PyObject*>(std::exchange(place, reinterpret_cast<Object*>(owned)));
  Py_XDECREF(old);
}

// Python stores every kind of function in one pointer type.
template <typename Function>
PyCFunction AsMethod(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace perseus::python
