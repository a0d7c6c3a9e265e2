// The session and the hooks around steps and instructions. A training step calls a hook for every
// instruction, so this is C++ on the C API of Python.
//
// A hook never raises, whatever its arguments are: it logs a warning once for each cause, and then
// does nothing. (Only a KeyboardInterrupt during the logging of a warning passes.)
//
// Thread safety: all code runs under Python's global interpreter lock, which guards the globals and
// the objects. The calls that may wait for files or for the agent (open, use_plan and close)
// release it, and so do the calls that enqueue on a stream: a call of the CUDA driver waits while
// the stream's queue of launches is full. During such a call, other threads may run any code here,
// and may close the session. So the call changes no object of Python meanwhile, and holds a
// reference to the session of the library. A hook that begins meanwhile, in another thread, does
// nothing.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "perseus.h"

namespace perseus::python {

inline constexpr int kKinds = 5;
// Chunks from this number on have no counter: an instruction without a microbatch then has number
// 0.
inline constexpr int kCountedChunks = 32;

struct SessionObject {
  // clang-format off
  PyObject_HEAD
  // Null after close. The last reference closes the session of the library.
  std::shared_ptr<perseus_session> handle;
  // clang-format on
  perseus_counters last_counters;  // The counters at close.
  std::uint64_t warnings_logged;
  std::array<char, 48> name;  // "dp0-pp3-tp0": the rank, in front of each warning.
  // Microbatches so far in this step, for instructions without a microbatch.
  std::array<std::array<std::int32_t, kCountedChunks>, kKinds> counts;
  bool is_running;  // Between the begin and the end of an instruction.
  bool on_stream;   // Whether that instruction began on a stream.
  void* stream;
  int device;       // The number of the device of the stream. -1: the current device.
  bool is_in_call;  // A thread is in a call on a stream, without the lock of the interpreter.
};

// The arguments of an instruction.
struct Instruction {
  int kind = -1;                 // -1: an argument was wrong, so hooks ignore it.
  std::int32_t microbatch = -1;  // -1: to be counted.
  std::int32_t chunk = 0;
  bool on_stream = false;
  void* stream = nullptr;
  int device = -1;  // The number of the device of the stream. -1: the current device.
};

// Reads the positional and keyword arguments of a METH_FASTCALL | METH_KEYWORDS function. Returns
// nullopt only if Python's error is set (KeyboardInterrupt).
std::optional<Instruction> ReadInstruction(PyObject* const* arguments, Py_ssize_t count,
                                           PyObject* keyword_names);

// Logs this warning once in this process. False if Python's error is set (KeyboardInterrupt).
bool WarnOnce(const char* message);
// Returns the current counters of an open session, or the last counters of a closed one.
perseus_counters ReadCounters(const SessionObject* session);
// Logs the new warnings of the session. False if Python's error is set.
bool LogWarnings(SessionObject* session);

// The session that was opened last, until it closes; borrowed, may be null.
SessionObject* DefaultSession();
bool IsSession(PyObject* object);

// Add their types and functions to the module. The functions of the hooks are methods of the type
// of sessions, too. False if Python's error is set.
bool AddSession(PyObject* module);
bool AddHooks(PyObject* module, PyTypeObject* session);
bool PrepareReading();  // For ReadInstruction.

// Python stores every kind of function in one pointer type.
template <typename Function>
PyCFunction AsMethod(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace perseus::python
