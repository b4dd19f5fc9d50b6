"""The package itself: what its import loads, its names, its version, its memory."""

import importlib
import importlib.metadata
import pathlib
import pkgutil
import re
import tomllib

import pytest
from processes import run_python

import sklsb
from sklsb import _compiled

ROOT = pathlib.Path(__file__).parents[1]
HEAVY = ("torch", "arviz", "arviz_base", "arviz_stats", "arviz_plots", "matplotlib", "networkx")


def run(code, *arguments):
    return run_python("-W", "ignore", "-c", code, *arguments).split()


def test_import_loads_nothing_but_itself():
    before_and_after = (
        "import sys; before = set(sys.modules); import sklsb;print(*(set(sys.modules) - before))"
    )
    loaded = {name.split(".")[0] for name in run(before_and_after)}
    assert "sklsb" in loaded
    unwanted = {"numba", "llvmlite", "numpy", "scipy", "sklearn", "xarray", "pandas", "tqdm"}
    assert not loaded & (unwanted | set(HEAVY))


def test_fit_and_sample_load_nothing_heavy():
    code = f"""
import sys
import numpy as np
from sklsb import Ising, LSBSampler
sampler = LSBSampler(n_chains=2, n_burn_in=50, random_state=0)
sampler.fit(Ising.lattice(np.linspace(-1, 1, 12).reshape(3, 4), 0.2)).sample(50)
sampler.to_datatree()
print("ok", *(name for name in {(*HEAVY, "tqdm", "IPython")!r} if name in sys.modules))
"""
    assert run(code) == ["ok"]


PUBLIC = [
    "LSBSampler",
    "Ising",
    "Target",
    "BalancingFunction",
    "Barker",
    "Sqrt",
    "Min",
    "Max",
    "Mixture",
    "Network",
    "balancing",
    "datasets",
    "diagnostics",
    "exact",
    "io",
    "targets",
    "samplers",
    "testing",
    "training",
]


def test_public_names():
    assert set(PUBLIC) <= set(sklsb.__all__)
    assert len(sklsb.__all__) == len(set(sklsb.__all__))
    for name in sklsb.__all__:
        assert getattr(sklsb, name) is not None
    assert dir(sklsb) == sorted(sklsb.__all__)
    modules = {m.name for m in pkgutil.iter_modules(sklsb.__path__) if m.name[0] != "_"}
    assert modules <= {*sklsb.__all__, "chains"}


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


@pytest.mark.parametrize("module", [*PUBLIC[10:], "chains", "exceptions", "learning"])
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sklsb.__version__ == project["version"]
    assert (ROOT / "CITATION.cff").read_text(encoding="utf-8").count(sklsb.__version__) >= 1
    try:
        installed = importlib.metadata.version("sklsb")
    except importlib.metadata.PackageNotFoundError:
        return  # run from a checkout
    assert installed == sklsb.__version__


def test_typed():
    assert (pathlib.Path(sklsb.__file__).parent / "py.typed").is_file()


def test_fast_without_torch_says_what_to_install():
    code = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'")
sys.meta_path.insert(0, NoTorch())
import numpy as np
from sklsb import Ising, LSBSampler
target = Ising(np.zeros((3, 3)), 0.5)
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
    assert run(code) == ["refused", "refused"]


@pytest.mark.parametrize("name", ["init_cache", "log_ratio", "flip", "log_prob"])
def test_target_functions_exist_only_compiled(name):
    function = getattr(_compiled, name)
    with pytest.raises(TypeError, match="compiled only"):
        function(*[None] * (2 if name in ("init_cache", "log_prob") else 3))


def test_every_cached_function_is_in_one_file():
    # Numba's cache does not see changes in another file.
    package = pathlib.Path(sklsb.__file__).parent
    for path in package.rglob("*.py"):
        if path.name != "_compiled.py":
            assert "cache=True" not in path.read_text(encoding="utf-8")


def test_torch_has_one_place():
    package = pathlib.Path(sklsb.__file__).parent
    for path in package.rglob("*.py"):
        if "_torch" not in path.parts:
            text = path.read_text(encoding="utf-8")
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
# What numba, scikit-learn, pandas and scipy take is theirs, and differs between their builds.
LSBSampler(n_burn_in=20).fit(Ising.lattice(np.zeros((2, 2)), 0.3)).sample(2)
before = peak()
target = Ising.lattice(np.random.default_rng(0).normal(size=(30, 30)), 0.3)
sampler = LSBSampler(n_chains=4, n_jobs=int(sys.argv[1]), random_state=0).fit(target)
draws = sampler.sample(30000)
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


def test_documentation_has_no_gaps():
    root = pathlib.Path(__file__).parents[1]
    pages = [root / "README.md", root / "CHANGELOG.md", *(root / "doc").glob("*.rst")]
    assert len(pages) > 5
    assert not [page.name for page in pages if ".. FILL" in page.read_text(encoding="utf-8")]
