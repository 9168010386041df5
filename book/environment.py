"""Check the Python, then make or mend the course's environment in .venv.

    python3 book/environment.py               make it, or do nothing if it is up to date
    python3 book/environment.py --torch cpu   take torch's CPU build (Linux without a GPU)

make runs this before every target. It is written so that an old Python can
read it too and answer in words: no annotations, no f-strings.

.venv holds two small files of ours. The note "course-unfinished" is there from
the first change to the last, so an installation that was cut short is seen
and made again from nothing. The stamp "course-stamp" is written last and says
what was installed: the hash of requirements.txt, of the lock and of the Python
version.
"""

from __future__ import print_function

import hashlib
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
STAMP = "course-stamp"
UNFINISHED = "course-unfinished"
BEGUN = "An installation has begun here and has not ended."
USAGE = "usage: python3 book/environment.py [--torch cpu]"
IMPORTED = ("course_lib", "torch", "matplotlib", "tqdm", "numpy", "jupyter_book", "myst_nb",
            "sphinx_exercise", "jupyterlab", "jupytext", "nbclient", "pytest", "nbval")


class Refusal(Exception):
    """Something the reader can repair; the message says how."""


def tried_pythons(root):
    """The Python versions that have a lock, oldest first: [(3, 10), (3, 11), ...]."""
    names = os.listdir(os.path.join(root, "constraints"))
    found = [re.match(r"py3(\d+)\.txt$", name) for name in names]
    return sorted((3, int(match.group(1))) for match in found if match)


def version_refusal(version, tried, executable="python3", other=None):
    """Say why this Python cannot be used, or return None if it can.

    version     sys.version_info or a tuple such as (3, 9, 18)
    tried       what tried_pythons returns
    executable  the interpreter the version belongs to
    other       a name such as "python3.12" of one that would do, if known
    """
    if tuple(version[:2]) in tried:
        return None
    relation = "older" if tuple(version[:2]) < tried[0] else "newer"
    return (
        "The course runs on Python {0[0]}.{0[1]} to {1[0]}.{1[1]}. This is Python {2} ({3}), "
        "which is {4} than the versions it was tried with.\n"
        "{5}name another interpreter, for example:\n"
        "    make book PYTHON={6}\n"
        "or, without make:\n"
        "    {6} book/environment.py"
    ).format(
        tried[0], tried[-1], ".".join(str(part) for part in version[:3]), executable, relation,
        "{0} is on this machine: ".format(other) if other else
        "Install one of them (https://www.python.org/downloads/), then ",
        other or "python{0[0]}.{0[1]}".format(tried[len(tried) // 2]),
    )


def other_python(tried):
    """The name of a usable interpreter among the tried versions, or None."""
    for major, minor in reversed(tried):
        name = "python{0}.{1}".format(major, minor)
        path = shutil.which(name) if hasattr(shutil, "which") else None
        # Version managers put a name on the path that may not run: ask it.
        if path and runs(path):
            return name
    return None


def runs(python):
    """Whether this interpreter starts at all."""
    try:
        with open(os.devnull, "w") as nowhere:
            return subprocess.call([python, "-c", ""], stdout=nowhere, stderr=nowhere) == 0
    except OSError:
        return False


def lock_path(root, version):
    return os.path.join(root, "constraints", "py{0}{1}.txt".format(*version[:2]))


def fingerprint(root, version):
    """One hash of everything that decides what .venv should hold."""
    whole = hashlib.sha256()
    for path in (os.path.join(root, "requirements.txt"), lock_path(root, version)):
        with open(path, "rb") as handle:
            whole.update(hashlib.sha256(handle.read()).digest())
    whole.update("{0}.{1}".format(*version[:2]).encode("ascii"))
    return whole.hexdigest()


def venv_python(venv):
    """The path of the interpreter inside a virtual environment."""
    if os.name == "nt":
        return os.path.join(venv, "Scripts", "python.exe")
    return os.path.join(venv, "bin", "python")


def read(path):
    """The text of a file, or nothing if it cannot be read."""
    try:
        with open(path) as handle:
            return handle.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def write(path, text):
    with open(path, "w") as handle:
        handle.write(text + "\n")


def usable(venv, version):
    """Whether the environment starts, is of this Python version and has pip."""
    python = venv_python(venv)
    question = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.check_output([python, "-I", "-c", question], stderr=subprocess.STDOUT)
    except (OSError, subprocess.CalledProcessError):
        return False
    return answer.decode("ascii", "replace").strip() == "{0}.{1}".format(*version[:2])


def remove_remains(venv):
    """Remove a spoilt environment, but nothing that is not one."""
    if not os.path.lexists(venv):
        return
    is_folder = os.path.isdir(venv) and not os.path.islink(venv)
    inside = os.listdir(venv) if is_folder else []
    if not is_folder or (inside and "pyvenv.cfg" not in inside and UNFINISHED not in inside):
        raise Refusal("{0} is there but is not a virtual environment. "
                      "Move it away, then run the same command again.".format(venv))
    shutil.rmtree(venv)


def create(venv):
    """Make an empty virtual environment, in place of whatever was left there."""
    remove_remains(venv)
    try:
        import ensurepip  # noqa: F401  (Debian and Ubuntu ship Python without it)
        import venv as venv_module  # noqa: F401
    except ImportError:
        raise Refusal(
            "This Python ({0}) cannot make virtual environments: its venv or ensurepip module is "
            "missing.\nOn Debian and Ubuntu: sudo apt-get install python3-venv. Elsewhere: install "
            "Python from https://www.python.org/downloads/. Then run the same command again."
            .format(sys.executable))
    os.mkdir(venv)
    write(os.path.join(venv, UNFINISHED), BEGUN)
    # The interpreter that runs this file may be the one inside the old .venv.
    base = getattr(sys, "_base_executable", None) or sys.executable
    done = subprocess.Popen([base, "-I", "-m", "venv", venv],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.communicate()[0].decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise Refusal("{0} could not make a virtual environment in {1}:\n{2}"
                      .format(base, venv, output))


def pip_install(venv, *arguments):
    """Run pip in the environment; its own messages go to the terminal."""
    command = [venv_python(venv), "-I", "-m", "pip", "install", "--disable-pip-version-check"]
    if not sys.stdout.isatty():
        command.append("--quiet")
    if subprocess.call(command + list(arguments)) != 0:
        raise Refusal(
            "pip could not install the packages; its own message stands above.\n"
            "Check the network (or the proxy settings) and the free space on the disk, then run the "
            "same command again.\nIf the message names torch: it is published for 64-bit Linux and "
            "Windows and for Macs with Apple silicon.")


def link_course(venv, root):
    """Let the environment import course_lib from this folder, in every notebook and editor."""
    question = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    packages = subprocess.check_output([venv_python(venv), "-I", "-c", question])
    packages = packages.decode(sys.getfilesystemencoding()).strip()
    # Relative, so that a copy of the whole folder imports its own course_lib.
    path = os.path.relpath(os.path.realpath(root), os.path.realpath(packages))
    write(os.path.join(packages, "course-folder.pth"), path)


def check_imports(venv):
    """Import what the course imports, so that a bad install is seen here and now."""
    question = "import " + ", ".join(IMPORTED)
    done = subprocess.Popen([venv_python(venv), "-I", "-c", question],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.communicate()[0].decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise Refusal("The packages are installed but do not load:\n    {0}\n"
                      "Remove the folder {1} and run the same command again."
                      .format(output.splitlines()[-1] if output else "no message", venv))


def prepare(root, torch=None, say=print):
    """Bring root/.venv up to date; returns whether there was anything to do."""
    version = sys.version_info
    tried = tried_pythons(root)
    if version_refusal(version, tried):
        raise Refusal(version_refusal(version, tried, sys.executable, other_python(tried)))
    venv = os.path.join(root, ".venv")
    stamp = os.path.join(venv, STAMP)
    unfinished = os.path.join(venv, UNFINISHED)
    wanted = fingerprint(root, version)
    if (read(stamp) == wanted and os.path.exists(venv_python(venv))
            and not os.path.exists(unfinished)):
        return False

    new = os.path.exists(unfinished) or not usable(venv, version)
    if new:
        again = " again, from nothing" if os.path.lexists(venv) else ""
        create(venv)
        say("Made .venv{0}, with Python {1}.{2}.{3}.".format(again, *version[:3]))
    else:
        say("Bringing .venv up to date.")
        write(unfinished, BEGUN)
    say("Installing the packages; the first time this takes some minutes.")
    requirements = os.path.join(root, "requirements.txt")
    if torch == "cpu":
        with open(requirements) as handle:
            pin = re.search(r"^torch==\S+", handle.read(), re.MULTILINE).group()
        pip_install(venv, pin, "--index-url", CPU_INDEX)
    elif new and sys.platform.startswith("linux") and not shutil.which("nvidia-smi"):
        say("(On Linux, PyPI's torch brings several GB of CUDA libraries. No NVIDIA GPU was seen here: "
            "to fetch\nthe CPU build instead, stop with Ctrl-C and run: make book TORCH=cpu)")
    pip_install(venv, "-r", requirements, "-c", lock_path(root, version))
    link_course(venv, root)
    check_imports(venv)
    write(stamp, wanted)
    os.remove(unfinished)
    say(".venv is ready.")
    return True


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        print(USAGE + "\n\n" + __doc__)
        return 0
    if arguments not in ([], ["--torch", "cpu"]):
        sys.stderr.write(USAGE + "\n")
        return 2
    try:
        prepare(ROOT, torch=arguments[1] if arguments else None)
    except Refusal as refusal:
        sys.stderr.write(str(refusal) + "\n")
        return 1
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write("The environment could not be made: {0}\n".format(error))
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. The next call begins again from nothing.\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
