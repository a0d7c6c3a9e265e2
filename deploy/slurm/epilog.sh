#!/bin/bash
# Slurm's Epilog on each node (docs/deploy.md). It ends the leases that the job still has on its GPUs,
# so the next job finds the GPUs with their original settings. Then it removes the job's directory.
#
# The exit status is always 0, because Slurm drains the node on any other status. The agent restores
# GPUs by itself when a process dies. This script covers processes that Slurm could not end.
set -uo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
jobs=/run/perseus/jobs
node=/run/perseus/node
kept=/run/perseus/slurm
perseus=/usr/bin/perseus

say() {
  printf 'perseus: job %s: %s\n' "${SLURM_JOB_ID:-?}" "$*" >&2
  logger -t perseus-epilog "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || true
}

# Detaches the file systems on a directory, as in the prolog.
unmount() {
  [[ -L $1 ]] || while umount -c -l "$1"; do :; done 2>/dev/null
}

# Slurm gives a GPU to one job at a time. So a lease on one of this job's GPUs belongs to this job.
release() {
  local gpu answer
  [[ -s $kept/$SLURM_JOB_ID/gpus ]] || return
  while read -r gpu; do
    if answer=$("$perseus" gpu release "$gpu" 2>&1); then
      say "still held $gpu; its lease is ended"
    elif [[ $answer != *"no lease holds"* ]]; then
      say "$answer"
    fi
  done <"$kept/$SLURM_JOB_ID/gpus"
}

if [[ ! ${SLURM_JOB_ID:-} =~ ^[0-9]+$ ]]; then
  say "SLURM_JOB_ID is not set (Slurm sets it)"
else
  release
  # The node process reports a step within 0.2 s of its end. This waits five times as long.
  [[ ! -e $jobs/$SLURM_JOB_ID/server.json ]] || sleep 1
  unmount "$jobs/$SLURM_JOB_ID"
  unmount "$kept/$SLURM_JOB_ID/new"
  rm -rf -- "${jobs:?}/$SLURM_JOB_ID" "${node:?}/$SLURM_JOB_ID" "${kept:?}/$SLURM_JOB_ID" || say "the job's directory is not removed"
fi
exit 0
