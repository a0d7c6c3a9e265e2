// perseus._virtual: a virtual GPU for a training process in Python (perseus/virtual.py).
//
// While it waits, it releases Python's global interpreter lock. Wrong input raises ValueError, and
// a failure of the system raises OSError.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

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

namespace py = pybind11;

namespace perseus {
namespace {

using virtual_gpu::InstructionTable;
using virtual_gpu::VirtualNode;
using virtual_gpu::VirtualWorker;

template <typename T>
T OrThrow(Result<T> result) {
  if (!result) {
    const Error& error = result.error();
    if (error.kind == ErrorKind::kSystem || error.kind == ErrorKind::kFile) {
      PyErr_SetString(PyExc_OSError, error.Message().c_str());
      throw py::error_already_set();
    }
    throw py::value_error(error.Message());
  }
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

class Profile {
 public:
  explicit Profile(const std::string& path)
      : profile_(OrThrow(profile::ParseProfile(OrThrow(ReadFile(path)), path))) {}

  // Returns nullopt if the profile does not have this instruction.
  std::optional<InstructionTable> Find(int stage, const std::string& kind, int chunk) const {
    const auto parsed = ParseInstructionKind(kind);
    if (!parsed) throw py::value_error("\"" + kind + "\" is no kind of instruction");
    auto table = virtual_gpu::MakeInstructionTable(profile_, stage, chunk, *parsed);
    if (!table) return std::nullopt;
    return *table;
  }

 private:
  profile::Profile profile_;
};

class Gpu {
 public:
  Gpu(const std::string& description, int gpu)
      : node_(OrThrow(VirtualNode::Open(description))), worker_(OrThrow(node_.OpenWorker(gpu))) {
    OrThrow(worker_.SetRest(virtual_gpu::Rest::kBlocking));
    // What follows the job uses the same clock.
    if (const std::string job = EnvironmentOr("PERSEUS_JOB_DIR"); !job.empty()) {
      OrThrow(virtual_gpu::SetClockOfJob(job, node_.spec().clock));
    }
  }

  void Compute(const InstructionTable& instruction) {
    // Before the first instruction, processes that take no part yet may start the others.
    if (!part_) part_ = node_.clock()->TakePart(Clock::Part::kProcess);
    const py::gil_scoped_release release;
    OrThrowWithoutGil(instruction);
  }

 private:
  void OrThrowWithoutGil(const InstructionTable& instruction) {
    auto done = worker_.Begin(instruction);
    if (done) done = worker_.WaitUntilDone();
    if (done) return;
    const py::gil_scoped_acquire acquire;
    OrThrow(std::move(done));
  }

  VirtualNode node_;
  VirtualWorker worker_;
  std::shared_ptr<void> part_;
};

PYBIND11_MODULE(_virtual, module) {
  py::class_<InstructionTable>(module, "Instruction");
  py::class_<Profile>(module, "Profile")
      .def(py::init<const std::string&>())
      .def("find", &Profile::Find);
  py::class_<Gpu>(module, "Gpu")
      .def(py::init<const std::string&, int>())
      .def("compute", &Gpu::Compute);
}

}  // namespace
}  // namespace perseus
