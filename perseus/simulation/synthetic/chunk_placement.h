// Which part of a model is where, when every rank of a pipeline holds several chunks of it.
#pragma once

namespace perseus::synthetic {

// Where the model goes on from chunk to chunk: from the last rank back to rank 0 (interleaved
// schedules), or on the rank where it is, in the other direction (zb-v, dualpipe-v). It says which
// stage and chunk are the model's last.
enum class ChunkPlacement { kLoop, kV };

// The place in the model's order of that chunk of that stage.
inline int PartOf(int stage, int chunk, int stages, ChunkPlacement placement) {
  const bool runs_back = placement == ChunkPlacement::kV && chunk % 2 == 1;
  return chunk * stages + (runs_back ? stages - 1 - stage : stage);
}

}  // namespace perseus::synthetic
