// A library that is opened at run time, such as the library of a GPU driver, and its functions. A
// build needs neither the library nor its headers.
//
//   struct Functions {
//     LibrarySymbols library;
//     int (*Init)() = library.Required("nvmlInit_v2");
//   };
//   Functions functions{*std::move(opened)};
//   if (functions.library.missing() != nullptr) ...
//
// Not thread-safe.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>

#include "perseus/base/result.h"

namespace perseus {

class LibrarySymbols {
 public:
  // An object without a library: every function is missing.
  LibrarySymbols() = default;
  // Finds the library by the loader's rules, and unloads it with the last copy of the result.
  // `flags` are more flags for dlopen(). Fails (kSystem) with the reason of the loader.
  static Result<LibrarySymbols> Open(const std::string& file, int flags = 0) {
    void* const opened = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (opened != nullptr) return LibrarySymbols(opened);
    const char* const reason = ::dlerror();
    return FailAs(ErrorKind::kSystem, "{}", reason == nullptr ? file : reason);
  }

  // A pointer to a function of any type.
  struct Symbol {
    void* address = nullptr;
    template <typename Function>
    operator Function*() const {  // NOLINT(google-explicit-constructor)
      return reinterpret_cast<Function*>(address);
    }
  };
  // Returns null if the library lacks the function.
  Symbol Optional(const char* name) const {
    return {library_ ? ::dlsym(library_.get(), name) : nullptr};
  }
  // Returns the same as Optional(). Also stores the name of the first missing function.
  Symbol Required(const char* name) {
    const Symbol symbol = Optional(name);
    if (symbol.address == nullptr && missing_ == nullptr) missing_ = name;
    return symbol;
  }
  // The name of the first missing required function. Null if none is missing.
  const char* missing() const { return missing_; }

 private:
  explicit LibrarySymbols(void* opened)
      : library_(opened, [](void* library) { ::dlclose(library); }) {}

  std::shared_ptr<void> library_;
  const char* missing_ = nullptr;
};

}  // namespace perseus
