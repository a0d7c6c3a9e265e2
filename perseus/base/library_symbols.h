// Looks up the functions of a library that is opened at run time, such as a GPU driver's.
//
// Not thread-safe.
#pragma once

#include <dlfcn.h>

namespace perseus {

class LibrarySymbols {
 public:
  // `library` is what dlopen() returned.
  explicit LibrarySymbols(void* library) : library_(library) {}

  // Null if the library lacks it.
  template <typename Function>
  void Optional(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  // As Optional(), and keeps the name of the first one that is missing.
  template <typename Function>
  void Required(Function*& function, const char* name) {
    Optional(function, name);
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  // Null if no required function is missing.
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

}  // namespace perseus
