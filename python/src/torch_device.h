// What the hooks need to know from torch about the device of a stream. These functions do not
// import torch. If torch is not imported, a stream has no device.
//
// Thread safety: call these functions under Python's global interpreter lock.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace perseus::python {

bool PrepareTorch();  // Needed before the functions below. Returns false if Python's error is set.

// Returns the number of the device of a torch.cuda.Stream, and -1 for other objects.
int DeviceOfStream(PyObject* stream);

// Whether this torch is for AMD GPUs. On AMD GPUs, devices have the type "cuda", too, but the CUDA
// driver does not know their streams.
bool IsTorchForRocm();

// Makes a device the current device. The default stream has the address 0 on every device, so the
// CUDA driver takes this address for the default stream of the current device. Does nothing for
// device -1. Does nothing if the device is already the current one; this check costs 0.15 us.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

  // False if torch refused to change the device.
  bool is_current() const { return is_current_; }
  // Makes the earlier device the current device again. Returns false if Python's error is set
  // (KeyboardInterrupt, which may come in any call of Python).
  bool Restore();

 private:
  void Make(int device);
  // Clears Python's error, but keeps a KeyboardInterrupt for Restore().
  void TakeError();

  PyObject* entered_ = nullptr;  // Owned: the torch.cuda.device() object that Restore() leaves.
  bool is_current_ = true;
  PyObject* kept_[3] = {};  // Owned: the error for Restore().
};

}  // namespace perseus::python
