#include <iterator>
#include <limits>

#include "python/src/hooks.h"
#include "python/src/torch_device.h"

namespace perseus::python {
namespace {

constexpr const char* kKindNames[kKinds] = {"forward",         "backward",  "backward_input",
                                            "backward_weight", "recompute", "optimizer_step"};
enum Argument { kKind, kMicrobatch, kChunk, kStream, kArguments };
constexpr const char* kArgumentNames[kArguments] = {"kind", "microbatch", "chunk", "stream"};

// Interned strings. Literals in user code are the same objects, so they are compared by address.
PyObject* kind_texts[kKinds] = {};
PyObject* argument_texts[kArguments] = {};

// Returns the index of `text` in `texts`, or -1.
int Find(PyObject* text, PyObject* const* texts, int count) {
  for (int i = 0; i < count; ++i) {
    if (texts[i] == text) return i;
  }
  if (!PyUnicode_Check(text)) return -1;
  for (int i = 0; i < count; ++i) {
    const int order = PyUnicode_Compare(texts[i], text);
    if (order == 0) return i;
    PyErr_Clear();
  }
  return -1;
}

// Reads a whole number from 0 on (Python's or NumPy's). Returns nullopt for any other value.
std::optional<std::int32_t> ReadCount(PyObject* value) {
  long number = -1;
  if (PyLong_Check(value)) {
    number = PyLong_AsLong(value);
  } else if (PyIndex_Check(value)) {
    number = static_cast<long>(PyNumber_AsSsize_t(value, PyExc_OverflowError));
  }
  if (number == -1) PyErr_Clear();
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return static_cast<std::int32_t>(number);
}

// Reads a CUDA stream: its address, or an object with the attribute `cuda_stream`, such as a
// torch.cuda.Stream.
bool ReadStream(PyObject* value, Instruction& instruction) {
  if (value == Py_None) return true;
  PyObject* const address =
      PyLong_Check(value) ? Py_NewRef(value) : PyObject_GetAttrString(value, "cuda_stream");
  if (address != nullptr && PyLong_Check(address)) {
    instruction.stream = PyLong_AsVoidPtr(address);
    instruction.on_stream = true;
    if (address != value) instruction.device = DeviceOfStream(value);
  }
  Py_XDECREF(address);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  return instruction.on_stream;
}

// Reads a number into `count`. If there is no number (None), does not change `count`.
bool ReadOptionalCount(PyObject* value, std::int32_t& count) {
  if (value == Py_None) return true;
  const auto number = ReadCount(value);
  if (number) count = *number;
  return number.has_value();
}

const char* Read(Argument argument, PyObject* value, Instruction& instruction) {
  switch (argument) {
    case kKind:
      instruction.kind = Find(value, kind_texts, kKinds);
      if (instruction.kind < 0) {
        return "instruction: the kind is not one of \"forward\", \"backward\", \"backward_input\", "
               "\"backward_weight\", \"recompute\"; Perseus ignores such instructions";
      }
      return nullptr;
    case kMicrobatch:
      if (ReadOptionalCount(value, instruction.microbatch)) break;
      return "instruction: the microbatch is not a whole number from 0; Perseus ignores such "
             "instructions";
    case kChunk:
      if (ReadOptionalCount(value, instruction.chunk)) break;
      return "instruction: the chunk is not a whole number from 0; Perseus ignores such "
             "instructions";
    case kStream:
      if (ReadStream(value, instruction)) break;
      return "instruction: the stream is neither a CUDA stream nor its address; Perseus ignores "
             "such "
             "instructions";
    case kArguments:
      break;
  }
  return nullptr;
}

}  // namespace

bool PrepareReading() {
  for (int i = 0; i < kKinds; ++i) kind_texts[i] = PyUnicode_InternFromString(kKindNames[i]);
  for (int i = 0; i < kArguments; ++i) {
    argument_texts[i] = PyUnicode_InternFromString(kArgumentNames[i]);
  }
  return PyErr_Occurred() == nullptr;
}

std::optional<Instruction> ReadInstruction(PyObject* const* arguments, Py_ssize_t count,
                                           PyObject* keyword_names) {
  Instruction instruction;
  const char* wrong = nullptr;
  bool has_kind = false;
  const Py_ssize_t keywords = keyword_names == nullptr ? 0 : PyTuple_Size(keyword_names);
  for (Py_ssize_t i = 0; i < count + keywords && wrong == nullptr; ++i) {
    const int argument =
        i < count ? static_cast<int>(i)
                  : Find(PyTuple_GetItem(keyword_names, i - count), argument_texts, kArguments);
    if (argument < 0 || argument >= kArguments) {
      wrong =
          "instruction: the arguments are kind, microbatch, chunk and stream, and no others; "
          "Perseus ignores such instructions";
      break;
    }
    has_kind = has_kind || argument == kKind;
    wrong = Read(static_cast<Argument>(argument), arguments[i], instruction);
  }
  if (wrong == nullptr && !has_kind) {
    wrong =
        "instruction: the kind is missing (for example \"forward\"); Perseus ignores such "
        "instructions";
  }
  if (wrong != nullptr) {
    if (!WarnOnce(wrong)) return std::nullopt;
    return Instruction();
  }
  return instruction;
}

}  // namespace perseus::python
