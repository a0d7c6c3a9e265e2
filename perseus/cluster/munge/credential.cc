#include "perseus/cluster/munge/credential.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "perseus/base/library_symbols.h"

namespace perseus::munge {
namespace {

// The part of libmunge's interface that is used here (munge.h of version 0.5).
constexpr int kSuccess = 0;
// EMUNGE_BAD_CRED. The codes from this one to kLastRefusal mean that munge refuses the credential.
constexpr int kFirstRefusal = 8;
constexpr int kLastRefusal = 18;
constexpr int kSocketOption = 8;
struct MungeContext;

struct Library {
  LibrarySymbols library;
  MungeContext* (*create)() = library.Required("munge_ctx_create");
  void (*destroy)(MungeContext*) = library.Required("munge_ctx_destroy");
  int (*set)(MungeContext*, int, ...) = library.Required("munge_ctx_set");
  int (*encode)(char**, MungeContext*, const void*, int) = library.Required("munge_encode");
  int (*decode)(const char*, MungeContext*, void**, int*, uid_t*,
                gid_t*) = library.Required("munge_decode");
  const char* (*text)(int) = library.Required("munge_strerror");
};

// Opens the library, and never closes it.
std::optional<Library> Open() {
  auto opened = LibrarySymbols::Open("libmunge.so.2", RTLD_NODELETE);
  if (!opened) return std::nullopt;
  Library functions{*std::move(opened)};
  if (functions.library.missing() != nullptr) return std::nullopt;
  return functions;
}

using Context = std::unique_ptr<MungeContext, void (*)(MungeContext*)>;

struct Ready {
  Library library;
  Context context;
};

Result<Ready> Prepare(const std::string& socket) {
  static const std::optional<Library> kLibrary = Open();
  if (!kLibrary) {
    return FailAs(ErrorKind::kSystem, "libmunge.so.2 is not there (apt-get install munge)");
  }
  Ready ready{*kLibrary, Context(kLibrary->create(), kLibrary->destroy)};
  if (!ready.context) return FailAs(ErrorKind::kSystem, "out of memory");
  if (!socket.empty() &&
      ready.library.set(ready.context.get(), kSocketOption, socket.c_str()) != kSuccess) {
    return FailAs(ErrorKind::kSystem, "{} is not the socket of munged", socket);
  }
  return ready;
}

using Bytes = std::unique_ptr<void, void (*)(void*)>;

}  // namespace

Result<std::string> Encode(const std::string& text, const std::string& socket) {
  PERSEUS_ASSIGN_OR_RETURN(const Ready ready, Prepare(socket));
  char* credential = nullptr;
  const int status = ready.library.encode(&credential, ready.context.get(), text.data(),
                                          static_cast<int>(text.size()));
  const Bytes owner(credential, std::free);
  if (status != kSuccess) {
    return FailAs(ErrorKind::kSystem, "munge: {} (does munged run on this host?)",
                  ready.library.text(status));
  }
  return std::string(credential);
}

Result<Decoded> Decode(const std::string& credential, const std::string& socket) {
  PERSEUS_ASSIGN_OR_RETURN(const Ready ready, Prepare(socket));
  void* bytes = nullptr;
  int size = 0;
  uid_t user = 0;
  gid_t group = 0;
  const int status =
      ready.library.decode(credential.c_str(), ready.context.get(), &bytes, &size, &user, &group);
  const Bytes owner(bytes, std::free);
  if (status == kSuccess) {
    const auto* text = static_cast<const char*>(bytes);
    return Decoded{text == nullptr ? "" : std::string(text, static_cast<std::size_t>(size)), user};
  }
  const char* why = ready.library.text(status);
  if (status >= kFirstRefusal && status <= kLastRefusal) {
    return Fail("munge refuses the credential: {}", why);
  }
  return FailAs(ErrorKind::kSystem, "munge: {} (does munged run on the server's host?)", why);
}

std::string JoinText(std::string_view server, std::string_view node) {
  return fmt::format("perseus join {} {}", server, node);
}

}  // namespace perseus::munge
