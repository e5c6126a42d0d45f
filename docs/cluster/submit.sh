#!/bin/bash
# Quantizes a checkpoint with a Slurm array and merges its parts:
#
#	submit.sh SRC OUT.gqf [FLAGS of gq quantize ...]
#
# SRC and OUT are on a file system that all nodes see, and gq is in their PATH. Prints the two job IDs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export SRC=$1 OUT=$2 FLAGS=${*:3}
# If all tasks failed, the merge would take an older file for the finished output.
if [ -e "$OUT" ]; then
	echo "$OUT exists: remove it, or choose another output" >&2
	exit 1
fi
parts=$(sbatch --parsable "$here/parts.sbatch")
merge=$(sbatch --parsable --dependency="afterany:$parts" "$here/merge.sbatch")
echo "$parts $merge"
