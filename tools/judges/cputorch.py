"""Makes the torch of the Python package index load without CUDA's libraries.

The index has torch for Linux only with CUDA: its libraries need 3 GB of other packages, though a program on a
CPU calls none of their functions. This program compiles, for each missing library that a library of torch is linked
with, a library with the same name and the same symbols. Every function in it returns 100, which is CUDA's
"no device". Run it with the Python that torch was installed for by `pip install --no-deps torch`; arguments are names
of other packages that were installed in this way because they demand a build of torch that the index does not have.
"""

import collections
import glob
import os
import re
import subprocess
import sys
import sysconfig
import tempfile

# PyTorch raises an error with these strings, and Transformers catches it.
FUNCTIONS = {name: f'const char *{name}(void) {{ return "no device"; }}\n' for name in ("cudaGetErrorName", "cudaGetErrorString")}


def read(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    lib = os.path.join(sysconfig.get_paths()["purelib"], "torch", "lib")
    cuda = r"lib(?:cu|nccl|nv)\w*\.so\.\d+"
    version_of = {}  # of each library that torch needs: the version of its symbols
    symbols = collections.defaultdict(set)  # by version
    for path in glob.glob(os.path.join(lib, "*.so*")):
        for library in re.findall(rf"NEEDED.*\[({cuda})\]", read("readelf", "-d", path)):
            version_of.setdefault(library, None)
        for library, version in re.findall(rf"File: ({cuda}) .*\n.*Name: (\S+)", read("readelf", "-V", path)):
            version_of[library] = version
        for line in read("nm", "-D", "--undefined-only", path).splitlines():
            name, _, version = line.split()[1].partition("@")
            if version or re.match(r"(cu|nccl|nv)[A-Za-z_]", name):
                symbols[version].add(name)
    unversioned = symbols.pop("", set())
    with tempfile.TemporaryDirectory() as tmp:
        source, script = os.path.join(tmp, "a.c"), os.path.join(tmp, "a.map")
        for library, version in sorted(version_of.items()):
            if os.path.exists(os.path.join(lib, library)):
                continue
            names = symbols[version] if version else unversioned
            with open(source, "w") as f:
                f.writelines(FUNCTIONS.get(name) or f"long {name}(void) {{ return 100; }}\n" for name in sorted(names))
            with open(script, "w") as f:
                f.write(f"{version or library} {{ global: *; }};\n")
            subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", os.path.join(lib, library), source,
                            f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"], check=True)
    # pip would install what is required with the next package.
    for package in ["torch", *sys.argv[1:]]:
        for path in glob.glob(os.path.join(lib, f"../../{package}-*.dist-info/METADATA")):
            with open(path) as f:
                lines = [line for line in f if not re.match(r"Requires-Dist: (cuda|nvidia|triton|torch|intel-openmp)", line)]
            with open(path, "w") as f:
                f.writelines(lines)


main()
