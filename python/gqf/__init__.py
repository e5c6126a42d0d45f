"""Reads .gqf files: low-bit weights of language models, mapped and used in place.

    import gqf

    with gqf.open("model.gqf") as f:
        t = f["model.layers.0.mlp.down_proj.weight"]
        w = t.dequantize()          # float32, by numpy
        packed = t.payload().data   # the mapped bytes that kernels read

docs/FORMAT.md defines the file; this package was written from it. gqf.torch loads models of PyTorch.
"""

from .errors import FormatError, UnsupportedError
from .file import File, Payload, Tensor
from .file import open_file as open
from .layouts import Matrix
from .packed import Header

__all__ = ["File", "FormatError", "Header", "Matrix", "Payload", "Tensor", "UnsupportedError", "open"]
