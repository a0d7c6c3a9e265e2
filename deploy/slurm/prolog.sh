#!/bin/bash
# Slurm's Prolog on each node (docs/deploy.md): makes the job's directory, /run/perseus/jobs/JOBID,
# and gives it to the perseus server's care if the job was submitted with --comment=perseus=KEY.
#
# A job is worth more than its plan: whatever goes wrong here, it starts. Hence always 0, for with
# anything else Slurm takes the node out of service.
set -uo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
jobs=/run/perseus/jobs
kept=/run/perseus/slurm  # Root's own: what the epilog has to know and the job must not change.
cards=/proc/driver/nvidia/gpus
group=perseus  # Of perseus-node.service, which writes into the directory, too.

say() {
  printf 'perseus: job %s: %s\n' "${SLURM_JOB_ID:-?}" "$*" >&2
  logger -t perseus-prolog "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || true
}

# The UUIDs of the job's GPUs, one a line; Slurm numbers them as /dev/nvidiaN.
gpus() {
  local card
  for card in "$cards"/*/information; do
    awk -F ':[ \t]*' -v "wanted=,${SLURM_JOB_GPUS:-}," '
      $1 ~ /^GPU UUID/ { uuid = $2 }
      $1 ~ /^Device Minor/ && index(wanted, "," $2 ",") { is_wanted = 1 }
      END { if (is_wanted) print uuid }' "$card"
  done
}

# What stands after perseus= in the comment, if it is what the server takes as a key; it goes into JSON
# as it is.
key() {
  local word='(^|[ ,;])perseus=([A-Za-z0-9._-]{1,200})($|[ ,;])' named=
  [[ ${SLURM_JOB_COMMENT:-} =~ $word ]] && named=${BASH_REMATCH[2]}
  case $named in
    j-* | . | ..) named= ;;
  esac
  if [[ -n $named ]]; then
    printf '%s' "$named"
  elif [[ ${SLURM_JOB_COMMENT:-} == *perseus=* ]]; then
    say "the comment names no job (expected perseus=KEY, of letters, digits, '.', '_' and '-', not beginning with j-)"
  fi
}

# Made where nobody else may write, and put in place by one rename: in `jobs` anybody may leave
# anything under this name, such as a link for root to follow.
prepare() {
  local mine=$kept/$SLURM_JOB_ID new=$kept/$SLURM_JOB_ID/new its_key
  umask 022
  mkdir -p "$kept" && chmod 0700 "$kept" || return
  [[ -d $jobs ]] || mkdir -m 1777 "$jobs" || return
  rm -rf -- "$mine" "${jobs:?}/$SLURM_JOB_ID" && mkdir "$mine" "$new" || return
  [[ -z ${SLURM_JOB_GPUS:-} ]] || gpus >"$mine/gpus"
  its_key=$(key)
  [[ -z $its_key ]] || printf '{"job": "%s"}\n' "$its_key" >"$new/server.json" || return
  chown -R "$SLURM_JOB_UID" "$new" || return
  if chgrp "$group" "$new" 2>/dev/null; then
    chmod 2775 "$new" || return
  else
    say "there is no group $group, so a node process of that name cannot give the job assignment"
    chmod 0755 "$new" || return
  fi
  mv -T "$new" "$jobs/$SLURM_JOB_ID"
}

if [[ ! ${SLURM_JOB_ID:-} =~ ^[0-9]+$ || ! ${SLURM_JOB_UID:-} =~ ^[0-9]+$ ]]; then
  say "SLURM_JOB_ID and SLURM_JOB_UID are not there; run by Slurm, they are"
else
  prepare || say "has no directory, and trains without perseus"
fi
exit 0
