// Random ids that nobody can guess, from the kernel.
#pragma once

#include <cstddef>
#include <string>

namespace perseus::server {

// Returns two hexadecimal digits for each byte.
std::string RandomHex(std::size_t bytes);

}  // namespace perseus::server
