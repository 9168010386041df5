"""Make the files in constraints/ again: python -m book.lock

One lock for each tried Python. A lock names every package that
requirements.txt leads to, at one version, for Linux, macOS and Windows. pip
reads it as a constraint, so a line binds a version and installs nothing: the
CUDA packages that PyPI's Linux build of torch asks for stay out of an
environment that holds the CPU build.

Needs uv, which the course itself does not use: python -m pip install uv
"""

import shutil
import subprocess
import sys
from pathlib import Path

from packaging.markers import Marker

from book import notebooks

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PLATFORMS = (
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
)
MACHINES = ("x86_64", "aarch64", "arm64", "AMD64")
# A marker may ask for a patch release (soupsieve does), so both ends count.
PATCHES = ("0", "99")


def lock_path(python):
    """The lock of a Python named as "3.12"."""
    return ROOT / "constraints" / f"py{python.replace('.', '')}.txt"


def serves(line, python):
    """Whether a locked line can apply to this Python on some platform.

    uv resolves for "this Python or later", so its answer for 3.10 also holds
    lines for later Pythons.
    """
    _, _, marker = line.partition(" ; ")
    if not marker:
        return True
    return any(
        Marker(marker).evaluate(
            {
                **platform,
                "platform_machine": machine,
                "python_version": python,
                "python_full_version": f"{python}.{patch}",
                "implementation_name": "cpython",
                "platform_python_implementation": "CPython",
            }
        )
        for platform in PLATFORMS
        for machine in MACHINES
        for patch in PATCHES
    )


def make_lock(uv, python):
    """Resolve requirements.txt for one Python and write its lock."""
    command = ["uv", "pip", "compile", "--universal", "--python-version", python,
               "--no-header", "--no-annotate", "requirements.txt"]
    done = subprocess.run([uv, *command[1:]], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"uv could not lock for Python {python}:\n{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if serves(line, python)]
    header = f"# Made for Python {python} by: python -m book.lock ({' '.join(command)})"
    path = lock_path(python)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8", newline="\n")
    print(f"{path.relative_to(ROOT).as_posix()}: {len(lines)} packages")


def main():
    uv = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if uv is None:
        sys.exit("uv is needed to make the locks: python -m pip install uv")
    for python in PYTHONS:
        make_lock(uv, python)


if __name__ == "__main__":
    notebooks.take_no_options("book.lock", __doc__)
    main()
