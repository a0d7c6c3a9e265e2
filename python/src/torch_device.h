// What the hooks need to know from torch about the device of a stream. torch is not imported here:
// without it, a stream has no device.
//
// Thread safety: under Python's global interpreter lock.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace perseus::python {

bool PrepareTorch();  // For the functions below. False if Python's error is set.

// Returns the number of the device of a torch.cuda.Stream, and -1 for other objects.
int DeviceOfStream(PyObject* stream);

// Whether this torch is for AMD GPUs. Its devices have the type "cuda", too, and their streams are
// unknown to the CUDA driver.
bool IsTorchForRocm();

// Makes a device the current one. The default stream has the address 0 on every device, so the CUDA
// driver takes it for that of the current device. Does nothing for device -1, and if the device is
// the current one, which costs 0.15 us.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

  // False if torch refused.
  bool is_current() const { return is_current_; }
  // Makes the earlier device the current one again. False if Python's error is set
  // (KeyboardInterrupt), which may come in any call of Python.
  bool Restore();

 private:
  void Make(int device);
  // Clears Python's error, but keeps a KeyboardInterrupt for Restore().
  void TakeError();

  PyObject* entered_ = nullptr;  // Owned: the torch.cuda.device() that Restore() leaves.
  bool is_current_ = true;
  PyObject* kept_[3] = {};  // Owned: the error for Restore().
};

}  // namespace perseus::python
