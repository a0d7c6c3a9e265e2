#include "perseus/base/random_id.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <stdexcept>
#include <vector>

namespace perseus {

std::string RandomHex(std::size_t bytes) {
  std::vector<unsigned char> random(bytes);
  // The kernel does not interrupt requests of up to 256 bytes.
  if (::getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    throw std::runtime_error("the kernel provides no random numbers");
  }
  std::string text;
  for (const unsigned char byte : random) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace perseus
