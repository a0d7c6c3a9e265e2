#!/bin/bash
# Slurm's Epilog on each node (docs/deploy.md): ends the leases that the job still has on its GPUs, so
# that the next job finds them as they were, and removes the job's directory.
#
# Always 0: with anything else Slurm takes the node out of service. The agent gives GPUs back by
# itself once a process is gone; this is for those that Slurm could not end.
set -uo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
jobs=/run/perseus/jobs
kept=/run/perseus/slurm
perseus=/usr/bin/perseus

say() {
  printf 'perseus: job %s: %s\n' "${SLURM_JOB_ID:-?}" "$*" >&2
  logger -t perseus-epilog "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || true
}

# Slurm gives a GPU to one job at a time, so a lease on one of this job's is the job's.
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
  say "SLURM_JOB_ID is not there; run by Slurm, it is"
else
  release
  # The node process tells a step within 0.2 s of its end; this leaves it five times as long.
  [[ ! -e $jobs/$SLURM_JOB_ID/server.json ]] || sleep 1
  rm -rf -- "${jobs:?}/$SLURM_JOB_ID" "${kept:?}/$SLURM_JOB_ID" || say "its directory is not removed"
fi
exit 0
