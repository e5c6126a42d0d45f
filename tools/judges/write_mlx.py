"""Writes checkpoints as mlx-lm converts them, for gq repack: write_mlx.py mlx MODEL DIR. Prints the names of the directories in DIR."""

import os
import sys

from mlx_lm import convert

for name, settings in {"group": dict(q_bits=4, q_group_size=32), "wide": dict(q_bits=4, q_group_size=128)}.items():
    directory = os.path.join(sys.argv[3], name)
    convert(sys.argv[2], directory, quantize=True, **settings)
    sys.stdout.write(directory + "\n")
