"""The three lists of packages agree: pyproject.toml, environment.yml, constraints.txt, and what is installed.

This proves equality and bounds; it does not prove that conda can solve environment.yml.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import tomllib

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {
    "matplotlib-base": "matplotlib",
    "nbconvert-core": "nbconvert",
    "python-fastjsonschema": "fastjsonschema",
}
CONDA_TOOLS = {"pip", "make"}
PIP_ONLY = {"math-verify", "genai-prices", "xllamacpp", "playwright"}  # not on conda-forge; pip brings them

REQUIRED = {
    canonicalize_name(requirement.name): requirement.specifier
    for requirement in map(Requirement, PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"])
}


def constraint_lines() -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return [line for line in lines if line]


def pins(python: str) -> dict[str, str]:
    """Package -> pinned version under a version of Python on Linux."""
    environment = default_environment() | {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
    }
    found: dict[str, str] = {}
    for requirement in map(Requirement, constraint_lines()):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{name} is pinned twice for Python {python}"
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", requirement
            found[name] = specifier.version
    return found


def test_environment_yml_lists_what_pyproject_asks_for_with_the_same_bounds():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    listed, pip = {}, []
    for entry in conda["dependencies"]:
        if isinstance(entry, dict):
            pip += entry["pip"]
            continue
        name, bound = re.fullmatch(r"([\w.-]+)\s*(.*)", entry).groups()
        listed[CONDA_NAMES.get(name, canonicalize_name(name))] = SpecifierSet(bound)
    assert listed.pop("python") == SpecifierSet(PROJECT["requires-python"])
    for tool in CONDA_TOOLS:
        assert listed.pop(tool) == SpecifierSet()
    assert listed == {name: bound for name, bound in REQUIRED.items() if name not in PIP_ONLY}
    assert REQUIRED.keys() >= PIP_ONLY
    assert pip == ["-e .[test]"], "the editable install brings the package and what conda-forge lacks"
    assert conda["channels"] == ["conda-forge", "nodefaults"]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_constraints_pin_every_requirement_within_its_bound(python):
    pinned = pins(python)
    missing = REQUIRED.keys() - pinned.keys()
    assert not missing, f"run `make lock`: {sorted(missing)}"
    for name, bound in REQUIRED.items():
        assert bound.contains(pinned[name], prereleases=True), (name, pinned[name], str(bound))


def test_constraints_hold_versions_and_no_addresses():
    for line in constraint_lines():
        assert Requirement(line).url is None, line
        assert "://" not in line and not line.startswith("-"), line


def test_what_is_installed_is_within_the_bounds():
    for name, bound in REQUIRED.items():
        assert bound.contains(importlib.metadata.version(name), prereleases=True), name
