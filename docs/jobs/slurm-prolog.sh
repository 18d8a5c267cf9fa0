#!/bin/bash
# A Slurm prolog: it examines the machine before a job gets it, and drains the node if it does not meet its contract.
#
#   slurm.conf:  Prolog=/etc/slurm/envkit-prolog.sh
#                PrologFlags=Alloc           # at the allocation, not at the first srun
#                PrologEpilogTimeout=60      # above `limit` below; without it slurmd waits for ever
#
# Exit 0 lets the job start.  Any other code makes Slurm drain the node and put a batch job back into the queue, held
# unless SchedulerParameters has nohold_on_prolog_fail; a waiting srun or salloc fails.  Slurm records only "Prolog
# error" as the node's reason; the actual reason is in syslog under envkit-prolog and in slurmd's log.  To bring the
# node back:
#   scontrol update NodeName=NODE State=RESUME
#
# Limits:
# - It examines the machine and not the job: it runs outside the job's cgroup and sees every GPU by the host's numbers.
# - It runs as SlurmdUser, which is nearly always root.  As another user it cannot read the kernel log, and an undecided
#   verdict drains the node.
# - It calls no Slurm command: slurmctld waits for the prologs of all nodes of a job, and scontrol or squeue in each of
#   them would all query it at once.
# - It must be short, because each job waits for it: doctor has a time budget, and `timeout` stops doctor if it takes
#   longer.  A machine that takes too long is not known to be healthy, so it is drained as for a fault.
# - A missing or invalid contract drains the node as well: test it with `envkit doctor --expect FILE` first.
set -u

PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/opt/envkit/bin
export PATH
contract=${ENVKIT_EXPECT:-/etc/envkit/expect.toml}
budget=8  # seconds for doctor's sources
limit=20  # and for the whole of it

said=$(timeout --kill-after=2 "$limit" envkit doctor --budget "$budget" --exit-style slurm --expect "$contract" \
    --format nagios 2>&1 </dev/null)
code=$?

if [ "$code" -eq 0 ]; then
    exit 0
fi
case $code in
124 | 137) why="envkit doctor did not end within $limit s" ;;
126 | 127) why="envkit cannot be run: ${said%%$'\n'*}" ;;
*) why=${said%%$'\n'*} ;;
esac
why=${why%% | *} # what follows is performance data
line="node ${SLURMD_NODENAME:-${HOSTNAME:-unknown}}, job ${SLURM_JOB_ID:-none}, code $code: ${why:-no reason was given}"
echo "envkit-prolog: $line" >&2
if command -v logger >/dev/null; then
    logger -t envkit-prolog -p daemon.err -- "$line" || :
fi
exit 1
