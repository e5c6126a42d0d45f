#!/bin/bash
# Runs submit.sh on a Slurm of its own on this machine, with 8 tasks: some are killed, some are requeued while
# they run, one after it has ended. The merged file must have the bytes of one run. It needs root and Debian's
# packages slurmctld, slurmd, slurm-client and munge; it starts no service of the system and uses no file of
# /etc. gq must be in the PATH. CI does not run it.
#
#	docs/cluster/slurm-test.sh [WORK]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath "${1:-$(mktemp -d)}")
log() { printf '%s  %s\n' "$(date +%T)" "$*"; }
for program in gq slurmctld slurmd munged sbatch; do
	command -v "$program" >/dev/null || { echo "$program is missing"; exit 1; }
done
mkdir -p "$work"/{state,spool,munge,run}
cd "$work"

pids=()
stop() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
}
trap stop EXIT

log "start munged, slurmctld and slurmd in $work"
# munged wants a path that no other user could have changed.
chmod 755 "$work"/munge
(umask 077; head -c 128 /dev/urandom >munge/key)
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
	--log-file="$work/munge/log" --seed-file="$work/munge/seed" 2>munge.err &
pids+=($!)
host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=gq
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$((20000 + RANDOM % 10000))
SlurmdPort=$((30000 + RANDOM % 10000))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued task may start when its old credential has expired.
AuthInfo=socket=$work/munge/socket,cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=1,sched_interval=2
KillWait=1
MinJobAge=600
ReturnToService=2
# More CPUs than there are, so that all 8 tasks run at once.
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=8192 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
touch cgroup.conf
export SLURM_CONF=$work/slurm.conf
for ((i = 0; i < 100; i++)); do [ -S munge/socket ] && break; sleep 0.1; done
slurmctld -D -i 2>ctld.err &
pids+=($!)
slurmd -D 2>slurmd.err &
pids+=($!)
for ((i = 0; i < 120; i++)); do
	[ "$(sinfo -h -o %t 2>/dev/null)" = idle ] && break
	sleep 0.5
done
[ "$(sinfo -h -o %t)" = idle ] || { tail -5 slurmctld.log slurmd.log ./*.err; exit 1; }

# The slowest search: tasks are killed while they run.
flags="--bits 4 --mapping asymmetric --scale-dtype f32 --layout kleidiai"
[ -e model ] || gq synth --preset smollm2-135m --quiet model
log "one run"
# shellcheck disable=SC2086
gq quantize model $flags --quiet -o one.gqf >/dev/null

log "an array of 8 tasks"
# shellcheck disable=SC2086
read -r parts merge < <("$here/submit.sh" "$work/model" "$work/out.gqf" $flags)
# task I: the process of gq of a task that runs; "" if there is none.
process() {
	local p
	for p in $(pgrep -f "^gq quantize $work/model" || true); do
		if tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qx "SLURM_ARRAY_TASK_ID=$1"; then
			echo "$p"
			return
		fi
	done
}
await() { # command...: until it prints something
	local out i
	for ((i = 0; i < 1200; i++)); do
		out=$("$@") && [ -n "$out" ] && echo "$out" && return
		sleep 0.05
	done
	echo "nothing happened: $*" >&2
	return 1
}
# states lists the tasks in a state.
states() { squeue -h -r -t all -j "$parts" -o '%K %T' | awk -v s="$1" '$2 == s {print $1}'; }
is() { states "$2" | grep -x "$1" || true; }

for task in 1 4; do
	pid=$(await process $task)
	kill -KILL "$pid"
	log "task $task: killed process $pid"
done
for task in 2 5; do
	await process $task >/dev/null
	scontrol requeue "${parts}_$task"
	log "task $task: requeued while it ran"
done
await is 0 COMPLETED >/dev/null
scontrol requeue "${parts}_0"
log "task 0: had ended, requeued"
[ "$(states COMPLETED | wc -l)" -lt 8 ] && [ ! -e out.gqf ] || { echo "the merge did not wait"; exit 1; }

for ((i = 0; i < 600; i++)); do
	[ "$(states COMPLETED | wc -l)" = 8 ] && break
	sleep 0.5
done
squeue -h -r -t all -j "$parts" -o 'task %K: %T'
for ((i = 0; i < 600; i++)); do
	state=$(squeue -h -t all -j "$merge" -o %T)
	[[ $state == PENDING || $state == RUNNING || $state == COMPLETING ]] || break
	sleep 0.5
done
log "merge: $state"
grep -h . gq-part-*.log | sort | uniq -c | sort -rn | head -20
cat gq-merge-*.log
[ "$state" = COMPLETED ]
for task in 1 4; do
	grep -q Killed "gq-part-$parts-$task.log" || { echo "task $task was not killed"; exit 1; }
done
for task in 2 5; do
	grep -q 'DUE TO JOB REQUEUE' "gq-part-$parts-$task.log" || { echo "task $task was not requeued"; exit 1; }
done
grep -q found "gq-part-$parts-0.log" || { echo "task 0 did not find its part"; exit 1; }
cmp one.gqf out.gqf
ls out.gqf.part-* 2>/dev/null && { echo "parts are left"; exit 1; }
log "the merged file has the bytes of one run"
