// Which part of a model a chunk holds, if every rank of a pipeline holds several chunks.
#pragma once

namespace perseus::synthetic {

// Where a model continues after the last rank of a chunk.
enum class ChunkPlacement {
  kLoop,  // On rank 0 again (interleaved schedules).
  kV,     // On the same rank, in the other direction (zb-v, dualpipe-v).
};

// The position of this chunk of this stage in the order of the model's layers, from 0.
inline int PartOf(int stage, int chunk, int stages, ChunkPlacement placement) {
  const bool runs_back = placement == ChunkPlacement::kV && chunk % 2 == 1;
  return chunk * stages + (runs_back ? stages - 1 - stage : stage);
}

}  // namespace perseus::synthetic
