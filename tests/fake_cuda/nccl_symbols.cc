// The functions of libnccl.so.2 that the qualifier calls.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "tests/fake_cuda/call_log.h"
#include "tests/fake_cuda/fake_nccl.h"

namespace fake_nccl {
namespace {

using perseus::Mutex;
using perseus::MutexLock;

constexpr int kInvalidArgument = 4;
constexpr int kDataTypes = 10, kOperations = 5;  // ncclInt8 … ncclBfloat16, ncclSum … ncclAvg.

struct Communicator {
  int clique = 0;  // The number of the CommInitAll that created it.
  int size = 0;    // How many GPUs the clique has.
};
struct ReduceCall {
  const Communicator* communicator = nullptr;
  std::tuple<std::size_t, int, int> arguments;  // Count, type, operation.
};
struct Library {
  CallLog calls;
  Mutex mutex;
  std::map<const void*, std::unique_ptr<Communicator>> communicators PERSEUS_GUARDED_BY(mutex);
  int cliques PERSEUS_GUARDED_BY(mutex) = 0;
  int depth PERSEUS_GUARDED_BY(mutex) = 0;  // How many groups are open.
  int group_error PERSEUS_GUARDED_BY(mutex) = 0;
  std::vector<ReduceCall> group PERSEUS_GUARDED_BY(mutex);
};
Library& TheLibrary() {
  static Library library;
  return library;
}

// Whether every GPU of every clique in the group takes part, with the same arguments.
int CheckGroup(const std::vector<ReduceCall>& group) {
  std::map<int, std::set<const Communicator*>> members;
  for (const ReduceCall& call : group) {
    const Communicator& communicator = *call.communicator;
    const bool is_new = members[communicator.clique].insert(&communicator).second;
    if (!is_new || call.arguments != group.front().arguments) return kInvalidUsage;
  }
  for (const ReduceCall& call : group) {
    const auto& clique = members[call.communicator->clique];
    if (clique.size() != static_cast<std::size_t>(call.communicator->size)) return kInvalidUsage;
  }
  return 0;
}

}  // namespace

void Reset() {
  const MutexLock lock(TheLibrary().mutex);
  if (!TheLibrary().communicators.empty() || TheLibrary().depth != 0) std::abort();
  TheLibrary().calls.Clear();
}
void FailOnce(std::string_view entry_point, int code, int after) {
  TheLibrary().calls.FailOnce(entry_point, code, after);
}
int Calls(std::string_view entry_point) { return TheLibrary().calls.Calls(entry_point); }
int LiveCommunicators() {
  const MutexLock lock(TheLibrary().mutex);
  return static_cast<int>(TheLibrary().communicators.size());
}

}  // namespace fake_nccl

using namespace fake_nccl;

extern "C" {

const char* ncclGetErrorString(int code) {
  switch (code) {
    case 0:
      return "no error";
    case kSystemError:
      return "unhandled system error";
    case kInvalidUsage:
      return "invalid usage";
    default:
      return "unknown result code";
  }
}

int ncclCommInitAll(void** communicators, int count, const int* devices) {
  Library& library = TheLibrary();
  const MutexLock lock(library.mutex);
  if (const int code = library.calls.Enter("ncclCommInitAll"); code != 0) return code;
  if (count < 1) return kInvalidArgument;
  if (std::set<int>(devices, devices + count).size() != static_cast<std::size_t>(count)) {
    return kInvalidUsage;
  }
  ++library.cliques;
  for (int i = 0; i < count; ++i) {
    auto made = std::make_unique<Communicator>(Communicator{library.cliques, count});
    communicators[i] = made.get();
    library.communicators[made.get()] = std::move(made);
  }
  return 0;
}

int ncclCommAbort(void* communicator) {
  Library& library = TheLibrary();
  const MutexLock lock(library.mutex);
  if (const int code = library.calls.Enter("ncclCommAbort"); code != 0) return code;
  return library.communicators.erase(communicator) == 0 ? kInvalidArgument : 0;
}

int ncclGroupStart() {
  Library& library = TheLibrary();
  const MutexLock lock(library.mutex);
  if (const int code = library.calls.Enter("ncclGroupStart"); code != 0) return code;
  ++library.depth;
  return 0;
}

int ncclGroupEnd() {
  Library& library = TheLibrary();
  const MutexLock lock(library.mutex);
  const int failed = library.calls.Enter("ncclGroupEnd");
  if (library.depth == 0) return kInvalidUsage;
  if (--library.depth > 0) return failed;
  const std::vector<ReduceCall> group = std::exchange(library.group, {});
  const int error = std::exchange(library.group_error, 0);
  if (failed != 0) return failed;
  return error != 0 ? error : CheckGroup(group);
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                  void* communicator, void* stream) {
  Library& library = TheLibrary();
  const MutexLock lock(library.mutex);
  int code = library.calls.Enter("ncclAllReduce");
  const auto found = library.communicators.find(communicator);
  const bool is_valid = from != nullptr && to != nullptr && stream != nullptr && type >= 0 &&
                        type < kDataTypes && operation >= 0 && operation < kOperations &&
                        found != library.communicators.end();
  if (code == 0 && !is_valid) code = kInvalidArgument;
  if (library.depth == 0) return code == 0 ? kInvalidUsage : code;
  if (code != 0) {
    library.group_error = code;
    return code;
  }
  library.group.push_back({found->second.get(), {count, type, operation}});
  return 0;
}

}  // extern "C"
