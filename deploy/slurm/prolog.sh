#!/bin/bash
# Slurm's Prolog on each node (docs/deploy.md). It creates the job's directory,
# /run/perseus/jobs/JOBID. If the job was submitted with --comment=perseus=KEY, it also connects the
# directory to the perseus server.
#
# The job must start even if this script fails. So the exit status is always 0: Slurm drains the node
# on any other status.
set -uo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
jobs=/run/perseus/jobs
node=/run/perseus/node   # Where perseus-node.service writes assignments.
kept=/run/perseus/slurm  # For root only: data for the epilog that the job must not change.
cards=/proc/driver/nvidia/gpus
group=perseus  # The group of perseus-node.service, which reads the directory.
# The most that a job writes into its directory: the logs of 16 ranks (PERSEUS_LOG_BYTES). It is memory,
# which is used only for what is written, and counts for the job.
size=16g

say() {
  printf 'perseus: job %s: %s\n' "${SLURM_JOB_ID:-?}" "$*" >&2
  logger -t perseus-prolog "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || true
}

# The UUIDs of the job's GPUs, one per line. Slurm numbers GPUs as /dev/nvidiaN.
gpus() {
  local card
  for card in "$cards"/*/information; do
    awk -F ':[ \t]*' -v "wanted=,${SLURM_JOB_GPUS:-}," '
      $1 ~ /^GPU UUID/ { uuid = $2 }
      $1 ~ /^Device Minor/ && index(wanted, "," $2 ",") { is_wanted = 1 }
      END { if (is_wanted) print uuid }' "$card"
  done
}

# The text after perseus= in the comment, if the server accepts it as a key. It goes into JSON
# without escaping.
key() {
  local word='(^|[ ,;])perseus=([A-Za-z0-9._-]{1,200})($|[ ,;])' named=
  [[ ${SLURM_JOB_COMMENT:-} =~ $word ]] && named=${BASH_REMATCH[2]}
  case $named in
    j-* | . | ..) named= ;;
  esac
  if [[ -n $named ]]; then
    printf '%s' "$named"
  elif [[ ${SLURM_JOB_COMMENT:-} == *perseus=* ]]; then
    say "the comment names no job (expected perseus=KEY, with letters, digits, '.', '_' and '-', not beginning with j-)"
  fi
}

# Detaches the file systems on a directory, even if a process still uses them. The job's user may have
# mounted another one there (FUSE). umount would follow a link.
unmount() {
  [[ -L $1 ]] || while umount -c -l "$1"; do :; done 2>/dev/null
}

# Creates the directory where only root may write, and moves it into place in one step. So a node
# process never sees a part of it. Only root may write into `jobs`. In a directory where every user may
# write, another user could take the name of the job first. An earlier version of Perseus left such a
# directory.
prepare() {
  local directory=$jobs/$SLURM_JOB_ID mine=$kept/$SLURM_JOB_ID new=$kept/$SLURM_JOB_ID/new old its_key
  umask 022
  mkdir -p "$kept" && chmod 0700 "$kept" || return
  mkdir -p "$jobs" && chown root:root "$jobs" && chmod 0755 "$jobs" || return
  # A job with this number that had no epilog.
  unmount "$directory"
  unmount "$new"
  # What already has this name is first moved away: its owner may put new files into it while it is
  # removed.
  old=$(mktemp -d "$kept/old.XXXXXX") || return
  [[ ! -e $directory && ! -L $directory ]] || mv -T "$directory" "$old/job" || return
  rm -rf -- "$mine" "$old" "${node:?}/$SLURM_JOB_ID"
  mkdir "$mine" "$new" || return
  [[ -z ${SLURM_JOB_GPUS:-} ]] || gpus >"$mine/gpus"
  # The job has a file system of its own, so it does not fill that of other jobs and of the node process.
  mount -t tmpfs -o "size=$size,nr_inodes=100k,mode=0700,nosuid,nodev,noexec" perseus "$new" || return
  its_key=$(key)
  [[ -z $its_key ]] || printf '{"job": "%s"}\n' "$its_key" >"$new/server.json" || return
  # Only the job's user writes into the directory. The ranks find the assignments of the node process
  # with the link.
  ln -s "../../${node##*/}/$SLURM_JOB_ID" "$new/node" || return
  chown -R "$SLURM_JOB_UID" "$new" || return
  # New files get the group of the directory. Without the group, only the job's user reads them.
  if chgrp "$group" "$new" 2>/dev/null; then
    chmod 2750 "$new" || return
  fi
  mkdir -m 0700 "$directory" && mount --bind "$new" "$directory" && umount "$new"
}

if [[ ! ${SLURM_JOB_ID:-} =~ ^[0-9]+$ || ! ${SLURM_JOB_UID:-} =~ ^[0-9]+$ ]]; then
  say "SLURM_JOB_ID and SLURM_JOB_UID are not set (Slurm sets them)"
else
  prepare || say "the job has no directory and trains without perseus"
fi
exit 0
