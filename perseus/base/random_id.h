// Random ids that nobody can guess, from the random numbers of the kernel.
#pragma once

#include <cstddef>
#include <string>

namespace perseus {

// Returns two hexadecimal digits for each byte. `bytes`: at most 256.
std::string RandomHex(std::size_t bytes);

}  // namespace perseus
