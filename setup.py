"""The packages of the wheel; everything else is in pyproject.toml."""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class BuildWithoutDataScripts(build_py):
    """data/ is mapped to course_lib.data for its documents, not for its scripts."""

    def find_package_modules(self, package, package_dir):
        if package == "course_lib.data":
            return []
        return super().find_package_modules(package, package_dir)


setup(
    packages=[*find_packages(include=["course_lib", "course_lib.*"]), "course_lib.data"],
    cmdclass={"build_py": BuildWithoutDataScripts},
)
