#include "perseus/base/file_descriptor.h"

#include <unistd.h>

namespace perseus {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace perseus
