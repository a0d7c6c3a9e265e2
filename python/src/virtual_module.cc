// perseus._virtual: a virtual GPU for a training process in Python (perseus/virtual.py).
//
// While it waits, it releases Python's global interpreter lock. Wrong input raises ValueError, and
// a failure of the system raises OSError.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "perseus/base/environment.h"
#include "perseus/base/file.h"
#include "perseus/base/instruction_kind.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/virtual_gpu/shared_clock.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "python/src/objects.h"

namespace perseus::python {
namespace {

using virtual_gpu::InstructionTable;
using virtual_gpu::VirtualNode;
using virtual_gpu::VirtualWorker;

void Raise(const Failure& failure) {
  const ErrorKind kind = failure.error.kind;
  const bool is_of_system = kind == ErrorKind::kSystem || kind == ErrorKind::kFile;
  PyErr_SetString(is_of_system ? PyExc_OSError : PyExc_ValueError, failure.error.Message().c_str());
}

template <typename Body>
PyObject* Call(const Body& body) {
  return Guard(Raise, body);
}

struct Profile {
  static constexpr const char* kCapsuleName = "perseus.profile";

  profile::Profile profile;
};

struct Instruction {
  static constexpr const char* kCapsuleName = "perseus.virtual_instruction";

  InstructionTable table;
};

class Gpu {
 public:
  static constexpr const char* kCapsuleName = "perseus.virtual_gpu";

  Gpu(const std::string& description, int gpu)
      : node_(OrThrow(VirtualNode::Open(description))),
        worker_(OrThrow(node_.OpenWorker(gpu))),
        gpu_(gpu) {
    OrThrow(worker_.SetRest(virtual_gpu::Rest::kBlocking));
    // What follows the job uses the same clock.
    if (const std::string job = EnvironmentOr("PERSEUS_JOB_DIR"); !job.empty()) {
      OrThrow(virtual_gpu::SetClockOfJob(job, node_.spec().clock));
    }
  }

  void Throttle(std::optional<int> clock_mhz) { OrThrow(node_.SetThrottle(gpu_, clock_mhz)); }

  void Compute(const InstructionTable& instruction) {
    // Before the first instruction, processes that take no part yet may start the others.
    if (!part_) part_ = node_.clock()->TakePart(Clock::Part::kProcess);
    OrThrow(ComputeWithoutLock(instruction));
  }

 private:
  Result<Nanoseconds> ComputeWithoutLock(const InstructionTable& instruction) {
    const WithoutLock released;
    auto done = worker_.Begin(instruction);
    if (done) done = worker_.WaitUntilDone();
    return done;
  }

  VirtualNode node_;
  VirtualWorker worker_;
  int gpu_;
  std::shared_ptr<void> part_;
};

// load_profile(path) -> profile
PyObject* LoadProfile(PyObject*, PyObject* given) {
  return Call([&] {
    std::string path;
    Read(given, path);
    return MakeCapsule(Profile{OrThrow(profile::ParseProfile(OrThrow(ReadFile(path)), path))});
  });
}

// find(profile, stage, kind, chunk) -> instruction, or None if the profile lacks it
PyObject* Find(PyObject*, PyObject* arguments) {
  return Call([&] {
    PyObject* profile = nullptr;
    int stage = 0, chunk = 0;
    const char* kind = nullptr;
    if (PyArg_ParseTuple(arguments, "Oisi", &profile, &stage, &kind, &chunk) == 0) {
      throw ErrorIsSet();
    }
    const auto parsed = ParseInstructionKind(kind);
    if (!parsed) {
      throw Failure{{"\"" + std::string(kind) + "\" is no kind of instruction"}};
    }
    auto table = virtual_gpu::MakeInstructionTable(FromCapsule<Profile>(profile).profile, stage,
                                                   chunk, *parsed);
    return table ? MakeCapsule(Instruction{*table}) : ToPython(nullptr);
  });
}

// open_gpu(description, gpu) -> gpu
PyObject* OpenGpu(PyObject*, PyObject* arguments) {
  return Call([&] {
    PyObject* description = nullptr;
    int number = 0;
    if (PyArg_ParseTuple(arguments, "Oi", &description, &number) == 0) throw ErrorIsSet();
    std::string path;
    Read(description, path);
    return MakeCapsule(Gpu(path, number));
  });
}

// compute(gpu, instruction): waits until the GPU has done it.
PyObject* Compute(PyObject*, PyObject* arguments) {
  return Call([&] {
    PyObject *gpu = nullptr, *instruction = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &gpu, &instruction) == 0) throw ErrorIsSet();
    FromCapsule<Gpu>(gpu).Compute(FromCapsule<Instruction>(instruction).table);
    return ToPython(nullptr);
  });
}

// throttle(gpu, clock_mhz): holds its clock down, as heat does. None: no longer.
PyObject* Throttle(PyObject*, PyObject* arguments) {
  return Call([&] {
    PyObject *gpu = nullptr, *clock = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &gpu, &clock) == 0) throw ErrorIsSet();
    std::optional<int> clock_mhz;
    if (clock != Py_None) Read(clock, clock_mhz);
    FromCapsule<Gpu>(gpu).Throttle(clock_mhz);
    return ToPython(nullptr);
  });
}

PyMethodDef functions[] = {
    {"load_profile", LoadProfile, METH_O, nullptr}, {"find", Find, METH_VARARGS, nullptr},
    {"open_gpu", OpenGpu, METH_VARARGS, nullptr},   {"compute", Compute, METH_VARARGS, nullptr},
    {"throttle", Throttle, METH_VARARGS, nullptr},  {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_virtual",
                          "A virtual GPU. Use it through perseus.virtual.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace perseus::python

PyMODINIT_FUNC PyInit__virtual() { return PyModule_Create(&perseus::python::definition); }
