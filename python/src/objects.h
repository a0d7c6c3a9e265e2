// From values of C++ to objects of Python and back.
//
// All modules of the package use only the stable ABI of Python 3.10 (PEP 384), so that one build
// works with each later Python. pybind11 does not offer this ABI, and nanobind offers it from
// Python 3.12 on. The planner needs little: it reads a dictionary of settings, and returns trees of
// plain values. A tree is a Json on its way, and a column of numbers in it is binary. (The stable
// ABI has no buffer protocol before 3.11, and a million numbers as objects would be slow.)
//
// Thread safety: all of it requires Python's global interpreter lock.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::python {

// Thrown while Python's error is set.
struct ErrorIsSet {};
// Thrown for an error of Perseus. Each module raises it in its own way (Guard).
struct Failure {
  Error error;
};

template <typename T>
T OrThrow(Result<T> result) {
  if (!result) throw Failure{std::move(result.error())};
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

using Json = nlohmann::ordered_json;

// An owned reference, or null.
class Object {
 public:
  Object() = default;
  // Takes the reference, which a function of Python has returned. Throws ErrorIsSet if it is null.
  explicit Object(PyObject* owned) : object_(owned) {
    if (owned == nullptr) throw ErrorIsSet();
  }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// Returns None, a bool, int, float, str, bytes, list or dict. Invalid UTF-8 is replaced.
Object ToPython(const Json& value);

// Returns the column as [the type of NumPy, bytes].
template <typename T, typename Items, typename Get>
Json Column(const Items& items, Get get) {
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, std::int32_t>);
  std::vector<std::uint8_t> bytes(items.size() * sizeof(T));
  std::uint8_t* place = bytes.data();
  for (const auto& item : items) {
    const T value = static_cast<T>(std::invoke(get, item));
    std::memcpy(place, &value, sizeof value);
    place += sizeof value;
  }
  return {std::is_same_v<T, double> ? "f8" : "i4", Json::binary(std::move(bytes))};
}

// These read an object into a value, and throw ErrorIsSet if it has another type.
void Read(PyObject* object, bool& value);
void Read(PyObject* object, int& value);
void Read(PyObject* object, double& value);
void Read(PyObject* object, std::string& value);  // A str, or bytes.
template <typename T>
void Read(PyObject* object, std::optional<T>& value) {
  Read(object, value.emplace());
}
template <typename T>
void Read(PyObject* list, std::vector<T>& values) {
  const Py_ssize_t count = PyList_Size(list);
  if (count < 0) throw ErrorIsSet();
  values.resize(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Read(PyList_GetItem(list, i), values[static_cast<std::size_t>(i)]);
  }
}
// Does not change the value if the dictionary lacks the key.
template <typename T>
void ReadItem(PyObject* dictionary, const char* key, T& value) {
  if (PyObject* const item = PyDict_GetItemString(dictionary, key)) Read(item, value);
}

// An object of Python that owns a value of C++, and that Python only hands around (a capsule). Each
// type has its own name, so a capsule of another type raises ValueError.
template <typename T>
Object MakeCapsule(T value) {
  auto* const owned = new T(std::move(value));
  PyObject* const capsule = PyCapsule_New(owned, T::kCapsuleName, [](PyObject* self) {
    delete static_cast<T*>(PyCapsule_GetPointer(self, T::kCapsuleName));
  });
  if (capsule == nullptr) delete owned;
  return Object(capsule);
}
template <typename T>
T& FromCapsule(PyObject* capsule) {
  void* const value = PyCapsule_GetPointer(capsule, T::kCapsuleName);
  if (value == nullptr) throw ErrorIsSet();
  return *static_cast<T*>(value);
}

// Releases the global interpreter lock while the object lives.
class WithoutLock {
 public:
  WithoutLock() : state_(PyEval_SaveThread()) {}
  ~WithoutLock() { PyEval_RestoreThread(state_); }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

// Calls `body`, which returns an Object. After an exception, returns null with Python's error set;
// `raise(failure)` sets it for a Failure.
template <typename Raise, typename Body>
PyObject* Guard(const Raise& raise, const Body& body) noexcept {
  try {
    return body().release();
  } catch (const ErrorIsSet&) {
  } catch (const Failure& failure) {
    try {
      raise(failure);
    } catch (const ErrorIsSet&) {
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace perseus::python
