#include "python/src/objects.h"

#include <climits>

namespace perseus::python {
namespace {

Object ListOf(const Json& values) {
  Object list(PyList_New(static_cast<Py_ssize_t>(values.size())));
  Py_ssize_t i = 0;
  for (const Json& value : values) {
    PyList_SetItem(list.get(), i++, ToPython(value).release());
  }
  return list;
}

Object DictionaryOf(const Json& values) {
  Object dictionary(PyDict_New());
  for (const auto& [key, value] : values.items()) {
    const Object item = ToPython(value);
    if (PyDict_SetItemString(dictionary.get(), key.c_str(), item.get()) != 0) throw ErrorIsSet();
  }
  return dictionary;
}

Object TextOf(const std::string& text) {
  return Object(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

Object BytesOf(const Json::binary_t& bytes) {
  return Object(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                          static_cast<Py_ssize_t>(bytes.size())));
}

}  // namespace

Object ToPython(const Json& value) {
  using Type = Json::value_t;
  switch (value.type()) {
    case Type::boolean:
      return Object(PyBool_FromLong(value.get<bool>() ? 1 : 0));
    case Type::number_integer:
    case Type::number_unsigned:
      return Object(PyLong_FromLongLong(value.get<long long>()));
    case Type::number_float:
      return Object(PyFloat_FromDouble(value.get<double>()));
    case Type::string:
      return TextOf(value.get_ref<const std::string&>());
    case Type::binary:
      return BytesOf(value.get_binary());
    case Type::array:
      return ListOf(value);
    case Type::object:
      return DictionaryOf(value);
    case Type::null:
    case Type::discarded:
      break;
  }
  return Object(Py_NewRef(Py_None));
}

void Read(PyObject* object, bool& value) {
  const int read = PyObject_IsTrue(object);
  if (read < 0) throw ErrorIsSet();
  value = read != 0;
}

void Read(PyObject* object, int& value) {
  const long read = PyLong_AsLong(object);
  if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
  if (read < INT_MIN || read > INT_MAX) {
    PyErr_SetString(PyExc_OverflowError, "the number is too large");
    throw ErrorIsSet();
  }
  value = static_cast<int>(read);
}

void Read(PyObject* object, double& value) {
  value = PyFloat_AsDouble(object);
  if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
}

void Read(PyObject* object, std::string& value) {
  Py_ssize_t size = 0;
  if (PyBytes_Check(object)) {
    char* bytes = nullptr;
    if (PyBytes_AsStringAndSize(object, &bytes, &size) != 0) throw ErrorIsSet();
    value.assign(bytes, static_cast<std::size_t>(size));
    return;
  }
  const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) throw ErrorIsSet();
  value.assign(text, static_cast<std::size_t>(size));
}

}  // namespace perseus::python
