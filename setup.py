"""The packages of the wheel; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class BuildWithoutDataScripts(build_py):
    """data/ is mapped to course_lib.data for its documents, not for its scripts.

    The report template is a page of the book; it travels beside the module that fills it.
    """

    def run(self):
        super().run()
        template = Path("book") / "report_template.md"
        if template.is_file():
            self.copy_file(template, Path(self.build_lib) / "course_lib" / template.name)

    def find_package_modules(self, package, package_dir):
        if package == "course_lib.data":
            return []
        return super().find_package_modules(package, package_dir)


setup(
    packages=[*find_packages(include=["course_lib", "course_lib.*"]), "course_lib.data"],
    cmdclass={"build_py": BuildWithoutDataScripts},
)
