// The largest jobs and values that files, messages and flags may contain.
//
// These limits fit any cluster, and they are narrow enough to reveal a wrong unit. Sums over
// millions of instructions stay far from the end of 64 bits.
#pragma once

namespace perseus {

// A clock that is given in Hz or kHz is far above this limit.
inline constexpr int kHighestFrequencyMhz = 100'000;
// The power of one GPU: the most that a user may state, and the most that a power meter may report.
// The second limit is high, because an unlikely reading is still valid.
inline constexpr double kMostWatts = 100'000;
inline constexpr double kMostMeasuredWatts = 1'000'000;
// The duration of one instruction or delay (about 11.6 days), and the energy of one instruction.
inline constexpr double kLongestSeconds = 1e6;
inline constexpr double kMostJoules = 1e12;
// The switch latency of a GPU.
inline constexpr double kLongestSwitchMs = 60'000;

inline constexpr int kMostPpRanks = 100'000;
inline constexpr int kMostChunks = 1'000;  // For each pp_rank.
inline constexpr int kMostGpusPerStage = 100'000;
inline constexpr int kMostPipelines = 1'000'000;
inline constexpr int kMostMicrobatches = 1'000'000;
// The highest number of a rank, a stage or a chunk in a file or message.
inline constexpr int kHighestRank = 1'000'000;

}  // namespace perseus
