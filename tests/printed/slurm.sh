#!/bin/bash
# Runs a command in a Slurm cluster of four nodes on this machine, which is ended with it: bash slurm.sh COMMAND ...
# Wants Debian's slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge, and root.
for tool in slurmctld slurmd srun munged; do
    command -v "$tool" >/dev/null || { echo "no slurm here"; exit 99; }
done
dir=$(mktemp -d /tmp/slurm-XXXXXX)
ids=()
trap 'kill "${ids[@]}" $(cat "$dir"/*.pid 2>/dev/null) 2>/dev/null; sleep 0.5; rm -rf "$dir"' EXIT
mkdir -p "$dir/munge" "$dir/state"
head -c 1024 /dev/urandom >"$dir/munge/key"
chmod 400 "$dir/munge/key"; chmod 755 "$dir" "$dir/munge"; chown -R munge "$dir/munge"
runuser -u munge -- munged --foreground --force --key-file "$dir/munge/key" --socket "$dir/munge/socket" \
    --pid-file "$dir/munge/pid" --log-file "$dir/munge/log" --seed-file "$dir/munge/seed" >"$dir/munge.out" 2>&1 &
ids+=($!)
base=$((20000 + RANDOM % 9000))
for n in 1 2 3 4; do for g in 0 1; do mknod "$dir/gpu$n$g" c 1 3 2>/dev/null; done; done
cat >"$dir/gres.conf" <<CONF
NodeName=gpu-[1-4] Name=gpu Type=h100 File=$dir/gpu1[0-1]
CONF
cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$base
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
PrologFlags=Alloc
KillWait=3
SlurmdTimeout=15
ReturnToService=2
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
OverTimeLimit=0
NodeName=gpu-[1-4] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + 4))] CPUs=8 RealMemory=4000 Gres=gpu:h100:2
PartitionName=gpu Nodes=gpu-[1-4] Default=YES MaxTime=60 State=UP
CONF
export SLURM_CONF=$dir/slurm.conf
sleep 1
slurmctld -D -f "$SLURM_CONF" >"$dir/ctld.out" 2>&1 &
ids+=($!)
for n in 1 2 3 4; do
    slurmd -D -N "gpu-$n" -f "$SLURM_CONF" >"$dir/slurmd$n.out" 2>&1 &
    ids+=($!)
done
for _ in $(seq 40); do
    test "$(sinfo -h -o %t 2>/dev/null | sort -u)" = idle && break
    sleep 0.3
done
"$@"
