#!/bin/bash
# A Slurm HealthCheckProgram: it examines the machine at intervals, drains the node while it does not meet its contract,
# and returns it to service once it does.
#
#   slurm.conf:  HealthCheckProgram=/etc/slurm/envkit-healthcheck.sh
#                HealthCheckInterval=300
#                HealthCheckNodeState=ANY,CYCLE   # also while jobs run, and not on all nodes at once
#
# A drained node keeps its running jobs and gets no new one.  The script changes only what is its own: a node that is
# drained or down for another reason is left alone, and only a reason that begins with "envkit-health" is taken away.
#
# Limits:
# - It runs as SlurmdUser, which is nearly always root.
# - Undecided drains the node as well, until the next examination.
# - slurmd ends the script after 60 seconds; doctor has a time budget, and `timeout` stops it if it takes longer.
# - Where the controller does not answer, nothing changes until the next interval.
set -u

PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/opt/envkit/bin
export PATH
contract=${ENVKIT_EXPECT:-/etc/envkit/expect.toml}
budget=8  # seconds for doctor's sources
limit=20  # and for the whole of it
node=${SLURMD_NODENAME:-$(hostname -s)}
mark=envkit-health

said=$(timeout --kill-after=2 "$limit" envkit doctor --budget "$budget" --exit-style slurm --expect "$contract" \
    --format nagios 2>&1 </dev/null)
code=$?
case $code in
124 | 137) said="envkit doctor did not end within $limit s" ;;
126 | 127) said="envkit cannot be run: $said" ;;
esac

shown=$(timeout 10 scontrol --oneliner show node "$node") || exit 0
state=${shown#* State=}
state=${state%% *}
reason=
case $shown in
*" Reason="*) reason=${shown#* Reason=} ;;
esac

if [ "$code" -eq 0 ]; then
    case $reason in
    "$mark"*) timeout 10 scontrol update NodeName="$node" State=UNDRAIN ;;
    esac
    exit 0
fi
case $state in
*DRAIN* | *DOWN* | *FAIL* | *MAINT*) exit 0 ;; # somebody's matter already, or this script's own
esac
why=${said%%$'\n'*}
why=${why%% | *} # what follows is performance data
why=${why//[^[:print:]]/ }
timeout 10 scontrol update NodeName="$node" State=DRAIN Reason="$mark: ${why:0:200}"
exit 0
