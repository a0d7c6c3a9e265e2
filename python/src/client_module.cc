// perseus._client: the functions of libperseus.so for Python.
#include "python/src/hooks.h"
#include "python/src/torch_device.h"

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_client",
                          "The client of Perseus. Use it through the package perseus.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__client() {
  PyObject* const module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  if (!perseus::python::PrepareTorch() || !perseus::python::PrepareReading() ||
      !perseus::python::AddSession(module) ||
      PyModule_AddStringConstant(module, "version", perseus_version()) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
