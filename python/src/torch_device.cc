#include "python/src/torch_device.h"

#include <limits>

namespace perseus::python {
namespace {

enum Name {
  kTorch,
  kCuda,
  kCurrentDevice,
  kDevice,
  kDeviceIndex,
  kEnter,
  kExit,
  kVersion,
  kHip,
  kNames
};
constexpr const char* kNameTexts[kNames] = {"torch",    "cuda",         "current_device",
                                            "device",   "device_index", "__enter__",
                                            "__exit__", "version",      "hip"};
PyObject* names[kNames] = {};

// Returns a borrowed reference. Null if the program has not imported torch. Sets no error.
PyObject* Torch() { return PyDict_GetItem(PyImport_GetModuleDict(), names[kTorch]); }

// Returns the number, or -1 if `value` (which may be null) is no number of a device. Does not
// change Python's error.
int NumberOf(PyObject* value) {
  if (value == nullptr || !PyLong_Check(value)) return -1;
  int overflow = 0;
  const long number = PyLong_AsLongAndOverflow(value, &overflow);
  const bool is_number = overflow == 0 && number >= 0 && number <= std::numeric_limits<int>::max();
  return is_number ? static_cast<int>(number) : -1;
}

}  // namespace

bool PrepareTorch() {
  for (int i = 0; i < kNames; ++i) names[i] = PyUnicode_InternFromString(kNameTexts[i]);
  return PyErr_Occurred() == nullptr;
}

int DeviceOfStream(PyObject* stream) {
  PyObject* const index = PyObject_GetAttr(stream, names[kDeviceIndex]);
  if (index == nullptr) PyErr_Clear();
  const int device = NumberOf(index);
  Py_XDECREF(index);
  return device;
}

bool IsTorchForRocm() {
  enum class Kind { kUnknown, kCuda, kRocm };
  static Kind kind = Kind::kUnknown;
  if (kind != Kind::kUnknown) return kind == Kind::kRocm;
  PyObject* const torch = Torch();
  if (torch == nullptr) return false;
  PyObject* const version = PyObject_GetAttr(torch, names[kVersion]);
  PyObject* const hip = version == nullptr ? nullptr : PyObject_GetAttr(version, names[kHip]);
  PyErr_Clear();
  kind = hip != nullptr && hip != Py_None ? Kind::kRocm : Kind::kCuda;
  Py_XDECREF(version);
  Py_XDECREF(hip);
  return kind == Kind::kRocm;
}

CurrentDevice::CurrentDevice(int device) {
  if (device >= 0) Make(device);
}

void CurrentDevice::Make(int device) {
  PyObject* const torch = Torch();
  PyObject* const cuda = torch == nullptr ? nullptr : PyObject_GetAttr(torch, names[kCuda]);
  PyObject* const now =
      cuda == nullptr ? nullptr : PyObject_CallMethodObjArgs(cuda, names[kCurrentDevice], nullptr);
  TakeError();
  const int current = NumberOf(now);
  if (current >= 0 && current != device) {
    PyObject* const number = PyLong_FromLong(device);
    PyObject* const guard = PyObject_CallMethodObjArgs(cuda, names[kDevice], number, nullptr);
    PyObject* const entered =
        guard == nullptr ? nullptr : PyObject_CallMethodObjArgs(guard, names[kEnter], nullptr);
    is_current_ = entered != nullptr;
    if (is_current_) entered_ = Py_NewRef(guard);
    TakeError();
    Py_XDECREF(number);
    Py_XDECREF(guard);
    Py_XDECREF(entered);
  }
  Py_XDECREF(now);
  Py_XDECREF(cuda);
}

void CurrentDevice::TakeError() {
  if (PyErr_Occurred() == nullptr) return;
  if (PyErr_ExceptionMatches(PyExc_Exception) || kept_[0] != nullptr) {
    PyErr_Clear();
  } else {
    PyErr_Fetch(&kept_[0], &kept_[1], &kept_[2]);
  }
}

bool CurrentDevice::Restore() {
  if (entered_ != nullptr) {
    PyObject* const left =
        PyObject_CallMethodObjArgs(entered_, names[kExit], Py_None, Py_None, Py_None, nullptr);
    TakeError();
    Py_XDECREF(left);
    Py_CLEAR(entered_);
  }
  if (kept_[0] == nullptr) return true;
  PyErr_Restore(kept_[0], kept_[1], kept_[2]);
  kept_[0] = kept_[1] = kept_[2] = nullptr;
  return false;
}

CurrentDevice::~CurrentDevice() {
  Py_XDECREF(entered_);
  for (PyObject* const part : kept_) Py_XDECREF(part);
}

}  // namespace perseus::python
