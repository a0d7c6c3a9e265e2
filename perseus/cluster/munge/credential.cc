#include "perseus/cluster/munge/credential.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "perseus/base/library_symbols.h"

namespace perseus::munge {
namespace {

// The part of libmunge's interface that is used here (munge.h of version 0.5).
constexpr int kSuccess = 0;
constexpr int kFirstRefusal = 8;  // EMUNGE_BAD_CRED: from here on, the credential is wrong.
constexpr int kLastRefusal = 18;
constexpr int kSocketOption = 8;
struct MungeContext;

struct Library {
  MungeContext* (*create)() = nullptr;
  void (*destroy)(MungeContext*) = nullptr;
  int (*set)(MungeContext*, int, ...) = nullptr;
  int (*encode)(char**, MungeContext*, const void*, int) = nullptr;
  int (*decode)(const char*, MungeContext*, void**, int*, uid_t*, gid_t*) = nullptr;
  const char* (*text)(int) = nullptr;
};

// The library stays open.
std::optional<Library> Open() {
  void* const opened = ::dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return std::nullopt;
  Library library;
  LibrarySymbols symbols(opened);
  symbols.Required(library.create, "munge_ctx_create");
  symbols.Required(library.destroy, "munge_ctx_destroy");
  symbols.Required(library.set, "munge_ctx_set");
  symbols.Required(library.encode, "munge_encode");
  symbols.Required(library.decode, "munge_decode");
  symbols.Required(library.text, "munge_strerror");
  if (symbols.missing() != nullptr) return std::nullopt;
  return library;
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
