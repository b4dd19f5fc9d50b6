"""The package itself: what its import loads, its names, its version, its memory."""

import ast
import importlib
import importlib.metadata
import inspect
import pathlib
import re
import subprocess
import sys
import tomllib

import _pytest.doctest
import pytest
from processes import run_python

import sklsb
from sklsb._kernels import contract

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = pathlib.Path(sklsb.__file__).parent
HEAVY = ("torch", "arviz", "arviz_base", "arviz_stats", "arviz_plots", "matplotlib", "networkx")


def run(code, *arguments):
    return run_python("-W", "ignore", "-c", code, *arguments).split()


@pytest.mark.slow
def test_examples_in_docstrings():
    for name in ("torch", "dimod"):
        pytest.importorskip(name)
    options = ["-q", "-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", "--doctest-modules"]
    options += ["--doctest-ignore-import-errors", "--ignore", PACKAGE / "pymc", PACKAGE]
    done = subprocess.run([sys.executable, "-m", "pytest", *options], stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stdout.decode()


def test_import_loads_nothing_but_itself():
    before_and_after = (
        "import sys; before = set(sys.modules); import sklsb;print(*(set(sys.modules) - before))"
    )
    loaded = {name.split(".")[0] for name in run(before_and_after)}
    assert "sklsb" in loaded
    unwanted = {"numba", "llvmlite", "numpy", "scipy", "sklearn", "xarray", "pandas", "tqdm"}
    assert not loaded & (unwanted | set(HEAVY))


LOADED = f"""
import sys
import numpy as np
from sklsb import Ising, LSBSampler
target = Ising.lattice(np.linspace(-1, 1, 12).reshape(3, 4), 0.2)
sampler = LSBSampler(n_chains=2, n_burn_in=50, random_state=0).fit(target)
sampler.to_datatree(sampler.sample(50))
print("ok", *(name for name in {(*HEAVY, "tqdm", "IPython")!r} if name in sys.modules))
"""
WITHOUT_TORCH = """
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'")
sys.meta_path.insert(0, NoTorch())
LSBSampler("sqrt", n_burn_in=20, random_state=0).fit(target).sample(20)
try:
    LSBSampler("sqrt", fast=True, n_burn_in=20, random_state=0).fit(target)
except ImportError as error:
    assert "fast=True and TorchTarget need torch" in str(error), error
    assert "pip install torch" in str(error), error
    print("refused")
from sklsb import TorchTarget
try:
    TorchTarget(lambda x: x.sum(1), 3)
except ImportError as error:
    assert "fast=True and TorchTarget need torch" in str(error), error
    print("refused")
"""


def test_fit_and_sample_load_nothing_heavy_and_fast_without_torch_says_what_to_install():
    assert run(LOADED + WITHOUT_TORCH) == ["ok", "refused", "refused"]


MODULES = {
    "balancing",
    "diagnostics",
    "exact",
    "exceptions",
    "extending",
    "io",
    "samplers",
    "targets",
    "testing",
}


def test_public_names():
    assert len(sklsb.__all__) == len(set(sklsb.__all__))
    for name in sklsb.__all__:
        assert getattr(sklsb, name) is not None
    assert dir(sklsb) == sorted([*sklsb.__all__, "plot"])
    modules = [getattr(sklsb, name) for name in (*MODULES, "plot", "pymc")]
    for module in modules:
        assert dir(module) == sorted(module.__all__)
    assert {name for name in sklsb.__all__ if inspect.ismodule(getattr(sklsb, name))} == MODULES


def test_public_names_are_few():
    named = set()
    for module in (sklsb, *(getattr(sklsb, name) for name in MODULES)):
        found = {name: getattr(module, name) for name in module.__all__}
        named |= {id(value) for value in found.values() if not inspect.ismodule(value)}
    assert len(named) <= 116


def test_objects_are_those_of_their_modules():
    from sklsb.balancing import Barker
    from sklsb.samplers import LSBSampler
    from sklsb.targets import Ising

    assert sklsb.LSBSampler is LSBSampler
    assert sklsb.Ising is Ising
    assert sklsb.Barker is Barker
    assert sklsb.balancing is importlib.import_module("sklsb.balancing")


def test_star_import():
    names = {}
    exec("from sklsb import *", names)
    assert set(sklsb.__all__) <= set(names)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_names_of_each_module(module):
    module = importlib.import_module(f"sklsb.{module}")
    assert module.__doc__
    for name in module.__all__:
        assert hasattr(module, name)


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'sklsb' has no attribute 'GibbsSamplr'"):
        _ = sklsb.GibbsSamplr
    with pytest.raises(ImportError, match="cannot import name 'GibbsSamplr'"):
        from sklsb import GibbsSamplr  # noqa: F401


def test_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {sklsb.__version__}\n" in citation
    try:
        installed = importlib.metadata.version("sklsb")
    except importlib.metadata.PackageNotFoundError:
        return  # run from a checkout
    assert installed == sklsb.__version__


def test_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_without_pymc_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(ImportError, match=r"from_pymc needs PyMC, .*`pip install pymc`.*\[pymc\]"):
        sklsb.from_pymc(None)
    with pytest.raises(ImportError, match=r"sklsb\.pymc\.DiscreteStep needs PyMC, .*\[pymc\]\.$"):
        _ = sklsb.pymc.DiscreteStep
    assert sklsb.targets.from_pymc is sklsb.from_pymc is sklsb.pymc.from_pymc


# ----------------------------------------------------------------- compiled functions

CONTRACT = {
    name: function
    for name, function in vars(contract).items()
    if hasattr(function, "implementations")
}


def test_the_functions_of_the_contract():
    of_a_view = {"init_cache", "log_ratio", "flip", "log_prob", "first_move", "hidden_activation"}
    of_a_view |= {"log_prob_is_cheap", "forget_way", "visible_field", "memo_place"}
    of_a_rule = {"rebuild", "prepare", "step", "log_prob_after", "n_used", "row_of"}
    assert set(CONTRACT) == of_a_view | of_a_rule


@pytest.mark.parametrize("name", CONTRACT)
def test_functions_of_the_contract_exist_only_compiled(name):
    function = CONTRACT[name]
    n_arguments = len(inspect.signature(function).parameters)
    with pytest.raises(TypeError, match=f"{name} exists only in compiled functions"):
        function(*[None] * n_arguments)


def test_inner_functions_exist_only_compiled():
    # A call would end the process.
    exp = sklsb.extending.exp
    with pytest.raises(TypeError, match="exp exists only in compiled functions"):
        exp(0.0)


# ----------------------------------------------------------------- what is where


def sources():
    """Each file of the package with the name of its module and its syntax tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = ("sklsb", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        yield path.relative_to(PACKAGE).as_posix(), name, text, ast.parse(text)


SOURCES = list(sources())


def is_for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def nodes(tree, everywhere=True):
    """Nodes of a tree; unless everywhere, what an import runs."""
    for node in ast.iter_child_nodes(tree):
        if is_for_types(node) and not everywhere:
            continue
        yield node
        if everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from nodes(node, everywhere)


def imported(name, is_package, tree, everywhere=True):
    """Names of all that a module imports, each with the modules that it may stand for."""
    for node in nodes(tree, everywhere):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = name.split(".")[: len(name.split(".")) + is_package - node.level]
                base = ".".join([*here, *filter(None, [node.module])])
            for alias in node.names:
                yield f"{base}.{alias.name}", base


def test_compiled_functions_are_in_the_kernels():
    # Elsewhere the cache on disk would not see an edit of what they call.
    compilers = {"njit", "jit", "vectorize", "guvectorize", "cfunc", "generated_jit", "stencil"}
    compilers |= {"overload", "intrinsic", "kernel", "inlined", "called"}
    allowed = {"extending.py": {"called", "inlined"}}
    for path, name, text, tree in SOURCES:
        assert "cache=True" not in text, path
        if path.startswith("_kernels/"):
            continue
        used = {found[0] for found in imported(name, path.endswith("__init__.py"), tree)}
        used |= {ast.unparse(node) for node in nodes(tree) if isinstance(node, ast.Attribute)}
        from_numba = {u.rpartition(".")[2] for u in used if re.match(r"(numba|nb)\.", u)}
        from_here = {u.rpartition(".")[2] for u in used if u.startswith("sklsb._kernels._jit.")}
        assert (from_numba | from_here) & compilers <= allowed.get(path, set()), path


def test_kernels_import_nothing_else_of_the_package():
    # What a kernel is made of must be what its entry in the cache is named by.
    for path, name, _, tree in SOURCES:
        if not path.startswith("_kernels/"):
            continue
        for found in imported(name, path.endswith("__init__.py"), tree):
            if found[0].split(".")[0] == "sklsb":
                inside = found[-1] == "sklsb.exceptions" or found[-1].startswith("sklsb._kernels")
                assert inside, f"{path} imports {found[0]}"


@pytest.mark.parametrize("everywhere", [False, True])
def test_no_circle_of_imports(everywhere):
    modules = {name for _, name, _, _ in SOURCES}
    needs = {}
    for path, name, _, tree in SOURCES:
        found = imported(name, path.endswith("__init__.py"), tree, everywhere)
        one_of = {next((m for m in names if m in modules), "") for names in found}
        folders = set()
        if not everywhere:
            # The import of a module in another folder runs the __init__ of that folder first.
            folders = {module.rpartition(".")[0] for module in one_of} & modules
            folders = {folder for folder in folders if not f"{name}.".startswith(f"{folder}.")}
        needs[name] = (one_of | folders) - {"", name}
    # Take away, again and again, what needs nothing that is left, or is not needed by it.
    left, n = set(needs), 0
    while n != len(left):
        n = len(left)
        left = {name for name in left if needs[name] & left}
        left &= {other for name in left for other in needs[name]}
    assert not left, {name: sorted(needs[name] & left) for name in left}


def test_no_room_needs_one_that_needs_it():
    # A room is a folder of the package, or a file beside them; also imports inside functions count.
    rooms = {name.split(".")[1] for _, name, _, _ in SOURCES if "." in name}
    needs = {room: set() for room in rooms}
    for path, name, _, tree in SOURCES:
        here = name.partition(".")[2].split(".")[0]
        for names in imported(name, path.endswith("__init__.py"), tree) if here else ():
            parts = names[0].split(".")
            if parts[0] == "sklsb" and len(parts) > 1:
                there = sklsb._OBJECTS.get(parts[1], f"sklsb.{parts[1]}").split(".")[1]
                needs[here] |= {there} & rooms - {here}
    left, n = set(rooms), 0
    while n != len(left):
        n = len(left)
        left = {room for room in left if needs[room] & left}
    assert not left, {room: sorted(needs[room] & left) for room in left}


def test_imports_are_found():
    code = """
import os, sklsb.exact
from sklsb.ensembles import rules as r
from . import base
from ..streams import spawn
if TYPE_CHECKING:
    from sklsb import never
class A:
    from sklsb import inside
def f():
    from sklsb import later
"""
    found = [names[0] for names in imported("sklsb.a.b", False, ast.parse(code), False)]
    first = [
        "os",
        "sklsb.exact",
        "sklsb.ensembles.rules",
        "sklsb.a.base",
        "sklsb.streams.spawn",
    ]
    assert found == [*first, "sklsb.inside"]
    found = [names[0] for names in imported("sklsb.a.b", False, ast.parse(code))]
    assert found == [*first, "sklsb.never", "sklsb.inside", "sklsb.later"]
    found = [names[0] for names in imported("sklsb.a", True, ast.parse("from . import b"))]
    assert found == ["sklsb.a.b"]


def test_torch_has_one_place():
    for path, _, text, _ in SOURCES:
        if "/_torch/" not in path:
            assert not re.search(r"^\s*(import|from) torch", text, re.MULTILINE), path


# On Linux getrusage starts from the peak of the process that started this one: of all tests so far.
PEAK = """
import pathlib, resource, sys
def peak():
    status = pathlib.Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
"""

MEMORY = """
import sys, warnings
import numpy as np
from sklsb import Ising, LSBSampler
warnings.simplefilter("ignore")
target = Ising.lattice(np.random.default_rng(0).normal(size=(30, 30)), 0.3)
sampler = LSBSampler(n_chains=4, n_jobs=int(sys.argv[1]), random_state=0)
# What numba, scikit-learn, pandas and scipy take is theirs, and differs between their builds; so
# does the code of kernels.
sampler.fit(target).sample(2)
forgets = pathlib.Path("/proc/self/clear_refs")
if forgets.exists():  # the peak so far
    forgets.write_text("5", encoding="utf-8")
before = peak()
draws = sampler.fit(target).sample(30000)
print(draws["x"].nbytes, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", ["1", "2"])
def test_peak_memory_is_the_draws_and_little_more(n_jobs):
    pytest.importorskip("resource", reason="peak memory is read from getrusage")
    draws, peak = map(int, run(PEAK + MEMORY, n_jobs))
    assert draws == 4 * 30_000 * 900
    assert peak <= draws + 20 * 10**6


STEADY = """
import warnings
import numpy as np
from sklsb import Ising, LSBSampler
warnings.simplefilter("ignore")
target = Ising.lattice(np.random.default_rng(0).normal(size=(30, 30)), 0.3)
sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=100, random_state=0).fit(target)
total = {"total": lambda x: x.sum(axis=1)}
for thin in (1_000, 20_000):
    sampler.sample(200, thin=thin, record=total)
    print(peak())
"""


def test_memory_does_not_grow_with_the_steps():
    pytest.importorskip("resource", reason="peak memory is read from getrusage")
    few, many = map(int, run(PEAK + STEADY))
    assert many - few <= 10 * 2**20


def test_the_recipe_asks_for_what_the_package_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    run = re.search(r"^  run:\n((?:    - .+\n)+)", recipe, flags=re.MULTILINE)[1]
    asked = {line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()}
    wanted = {line.replace("torch", "pytorch") for line in project["dependencies"]}
    assert asked == wanted | {"python" + project["requires-python"]}
    (name, function), *_ = project["scripts"].items()
    assert f"- {name} = {function}\n" in recipe


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
def test_git_tracks_no_links():
    command = ["git", "ls-files", "--stage"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not [line for line in listed.splitlines() if line.startswith("120000")]


def test_documentation_has_no_gaps():
    root = pathlib.Path(__file__).parents[1]
    pages = [root / "README.md", root / "CHANGELOG.md", *(root / "doc").glob("*.rst")]
    assert len(pages) > 5
    assert not [page.name for page in pages if ".. FILL" in page.read_text(encoding="utf-8")]


def test_examples_with_numbers_without_decimals_are_compared_as_text():
    """Elsewhere the decimals shown count; 0. and 1. would be the same number by that rule."""
    checker, flags = _pytest.doctest._get_checker(), _pytest.doctest._get_number_flag()
    same = {"0.33": "0.3333", "array([0.5, 1.5])": "array([0.50001, 1.4999])"}
    assert all(checker.check_output(f"{a}\n", f"{b}\n", flags) for a, b in same.items())
    others = {"array([0., 1.])": "array([1., 0.])", "-2.\n 0.33": "-2.5\n 0.33", "0.33": "0.36"}
    assert not any(checker.check_output(f"{a}\n", f"{b}\n", flags) for a, b in others.items())
