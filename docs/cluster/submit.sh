#!/bin/bash
# Quantizes a checkpoint with a Slurm array and merges its parts:
#
#	submit.sh SRC OUT.gqf [FLAGS of gq quantize ...]
#
# SRC and OUT are on a file system that all nodes see, and gq is in their PATH. Prints the two job IDs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export SRC=$1 OUT=$2 FLAGS=${*:3}
# The merge takes parts of this plan only, and no older file of another plan for its output.
# shellcheck disable=SC2086 # FLAGS are several words
PLAN=$(gq quantize "$SRC" $FLAGS --part 0/8 --dry-run --quiet -o "$OUT")
export PLAN
parts=$(sbatch --parsable "$here/parts.sbatch")
merge=$(sbatch --parsable --dependency="afterany:$parts" "$here/merge.sbatch")
echo "$parts $merge"
