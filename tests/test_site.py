"""The built documentation, as files and in a browser.

Both need ``sphinx-build doc doc/_build/html`` first, and the second a Chromium. No page of the site
may depend on the network, so the browser is given none but this server.
"""

import collections
import functools
import hashlib
import html.parser
import http.server
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import threading
import urllib.parse

import pytest

SITE = pathlib.Path(__file__).parents[1] / "doc" / "_build" / "html"
HARNESS = pathlib.Path(__file__).parent / "site_harness.html"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
LIMIT = 400.0  # seconds; some three pages per second and width
MOST_WORDS = 1200  # of a page that is read from top to bottom
MOST_WORDS_OF_ALL = 45_000
LOOKED_UP = (
    *("generated/", "auto_examples/"),
    *("api.", "changes.", "glossary.", "genindex.", "py-modindex."),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="doc/_build/html is not built"),
]

HOOK = b"""<script>
window.siteErrors = [];
addEventListener("error", e => siteErrors.push(e.message || "cannot load " + (e.target.src || e.target.href)), true);
addEventListener("unhandledrejection", e => siteErrors.push(String(e.reason)));
console.error = (...words) => siteErrors.push(words.join(" "));
</script>"""  # noqa: E501


class Page(html.parser.HTMLParser):
    """What a page links to, loads and calls itself."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded, self.incomplete = set(), [], [], []
        self.title, self._in_title = "", False
        self.n_words, self._open = 0, collections.Counter()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        at = dict(attrs)
        self._open[tag] += 1
        self.ids.add(at.get("id"))
        if tag == "a" and at.get("href"):
            self.links.append(at["href"])
        source = at.get("src") or (at.get("href") if tag == "link" else None)
        if source and at.get("rel") != "canonical":
            self.loaded.append(source)
        if tag == "img" and not (at.get("alt") and at.get("src")):
            self.incomplete.append(str(at))
        self._in_title = tag == "title" and not self.title

    def handle_data(self, data):
        if self._in_title:
            self.title += data
        if self._open["article"] and not any(self._open[tag] for tag in ("pre", "table", "math")):
            self.n_words += len(data.split())

    def handle_endtag(self, tag):
        self._open[tag] -= 1
        self._in_title = self._in_title and tag != "title"


def page_names():
    return sorted(
        str(path.relative_to(SITE))
        for path in SITE.rglob("*.html")
        if not {"_static", "_modules"} & set(path.relative_to(SITE).parts)
    )


@functools.cache
def pages():
    return {name: Page(SITE / name) for name in page_names()}


def is_elsewhere(link):
    return bool(urllib.parse.urlsplit(link).scheme or link.startswith("//"))


def test_every_internal_link_leads_somewhere():
    broken = []
    for name, page in pages().items():
        for link in [*page.links, *page.loaded]:
            if is_elsewhere(link):
                continue
            parts = urllib.parse.urlsplit(link)
            path = (SITE / name).parent / urllib.parse.unquote(parts.path) if parts.path else None
            target = SITE / name if path is None else path.resolve()
            if not target.exists():
                broken.append((name, link))
            elif parts.fragment and target.suffix == ".html":
                found = pages().get(str(target.relative_to(SITE.resolve())))
                if found is not None and urllib.parse.unquote(parts.fragment) not in found.ids:
                    broken.append((name, link))
    assert len(pages()) > 40
    assert not broken


def test_no_directive_is_text():
    """As where a table of methods is put into a paragraph."""
    shown = [p for p in SITE.rglob("*.html") if ".. rubric::" in p.read_text(encoding="utf-8")]
    assert shown == []


def test_images_are_whole_titles_differ_and_nothing_comes_from_elsewhere():
    titles = [page.title for page in pages().values()]
    assert sorted({title for title in titles if titles.count(title) > 1 or not title}) == []
    assert {n: p.incomplete for n, p in pages().items() if p.incomplete} == {}
    loaded = {link for page in pages().values() for link in page.loaded}
    assert sorted(filter(is_elsewhere, loaded - {x for x in loaded if x.startswith("data:")})) == []


def test_pages_are_short_enough_to_read():
    read = {name: page for name, page in pages().items() if not name.startswith(LOOKED_UP)}
    assert {n: p.n_words for n, p in read.items() if p.n_words > MOST_WORDS} == {}
    assert sum(page.n_words for page in read.values()) <= MOST_WORDS_OF_ALL


def test_pages_of_classes_begin_with_what_users_need():
    def shown(cls):
        text = (SITE / f"generated/sklsb.{cls}.html").read_text(encoding="utf-8")
        found = re.findall(rf'<dt class="sig[^>]*id="sklsb\.{cls}\.(\w+)"', text)
        toc = re.findall(rf'toc-entry"><a[^>]*href="#sklsb\.{cls}\.(\w+)"', text)
        assert toc == found
        return found, text

    assert shown("LSBSampler")[0][:2] == ["fit", "sample"]
    assert shown("MarkovNetwork")[0][0] == "from_tables"
    found, text = shown("Ising")
    assert found[0] == "lattice"
    assert found.index("from_bqm") < found.index("condition") < found.index("log_ratios")
    assert {"view", "guard", "weighted", "offers"}.isdisjoint(found)
    assert "For authors" not in text
    found, text = shown("Target")
    assert found.index("log_factors") < min(map(found.index, ("view", "guard", "offers")))
    assert text.index('id="sklsb.Target.log_factors"') < text.rindex("For authors of targets")


def test_pages_of_classes_leave_out_what_these_refuse():
    shown = {
        name: (SITE / f"generated/sklsb.{name}.html").read_text(encoding="utf-8")
        for name in ("AutoSampler", "LSBSampler")
    }
    assert "initial_states" in shown["AutoSampler"]
    assert ["<strong>checkpoint</strong>" in text for text in shown.values()] == [False, True]
    assert ['<span class="n"><span class="pre">checkpoint' in t for t in shown.values()] == [
        False,
        True,
    ]


def test_lists_of_changes_are_folded():
    text = (SITE / "changes.html").read_text(encoding="utf-8")
    assert text.count("<details><summary>") == text.count("</details>") > 10
    assert text.index('id="what-it-offers"') < text.index("<details>")
    assert text.rindex("<details>") < text.index('id="for-those-who-used-earlier-commits"')
    assert text.index('id="gone-or-renamed"') < text.index('id="seeded-draws-that-change"')
    assert pages()["changes.html"].n_words < 2000


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, with a hook for errors in each page, and takes the report."""

    def do_GET(self):
        name = urllib.parse.urlsplit(self.path).path.lstrip("/")
        if name == "harness":
            words = HARNESS.read_text(encoding="utf-8").replace("PAGES", json.dumps(page_names()))
            return self.answer(words.encode())
        if name.endswith(".html") and (SITE / name).exists():
            return self.answer((SITE / name).read_bytes().replace(b"<head>", b"<head>" + HOOK, 1))
        return super().do_GET()

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(b"")
        self.server.reported.set()

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    handler = functools.partial(Handler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.reported = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,1000")
        profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
        address = f"http://127.0.0.1:{server.server_port}/harness"
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([BROWSER, *options, profile, address], **silent) as browser:
            try:
                assert server.reported.wait(LIMIT), "the browser did not come to an end"
            finally:
                browser.terminate()
                browser.wait()
                server.shutdown()
        return server.report


@pytest.mark.parametrize(
    "fault",
    ["errors", "pictures", "sideways", "headings", "code", "bar"],
)
def test_pages_in_a_browser(report, fault):
    assert len(report["pages"]) == 2 * len(page_names())
    assert {key: page[fault] for key, page in report["pages"].items() if page[fault]} == {}


def test_search_finds_evidence(report):
    assert any("evidence.html" in link for link in report["found"])


# What people type, and the page that should be among the first three.
SEARCHES = {
    "denoise image": "target_potts",
    "export to pandas dataframe": "draws",
    "arviz InferenceData": "draws",
    "save results to disk": "saving",
    "how many samples do I need": "stopping",
    "my chain is stuck": "tempering",
    "simulated annealing optimum": "tempering",
    "convert to InferenceData arviz": "draws",
    "credible interval": "spike_slab",
    "specific heat": "temperatures",
    "susceptibility": "temperatures",
    "calibration": "classes",
    "coverage": "told",
    "symptom": "symptoms",
    "virtual evidence": "evidence",
    "soft evidence": "evidence",
    "progress bar": "fit_cost",
    "state names": "target_network",
    "log likelihood": "target_rbm",
    "categorical": "targets",
    "logistic regression": "classes",
    "simulated annealing": "tempering",
    "permutation": "swaps",
    "bayesian network": "target_network",
    "partition function": "exact",
    "resume": "long_runs",
    "checkpoint": "long_runs",
    "mixed model": "mixed",
    "posterior predictive": "classes",
    "ground state": "temperatures",
    "contingency table": "target_network",
    "chi square": "check_any",
    "missing data": "evidence",
    "honeycomb lattice": "temperatures",
    "one-hot": "target_tokens",
    "energy-based model": "target_torch",
    "odds ratio": "classes",
    "duplicate columns": "spike_slab",
    "notebook": "fit_cost",
    "interrupt": "long_runs",
    "effective sample size": "am_i_right",
    "variable elimination": "exact",
    "normalizing constant": "exact",
    "dummy variables": "classes",
    "cross-validation": "classes",
    "metropolis": "samplers",
    "out of memory": "limits_computing",
    "multimodal": "am_i_right",
    "custom likelihood": "target_function",
    "discrete latent": "mixed",
    "numpyro": "mixed",
    "windows": "install",
    "license": "contributing",
    "github": "contributing",
    "changelog": "contributing",
    "release notes": "contributing",
    "bug report": "contributing",
    "hidden markov model": "time",
    "HMM": "time",
    "denoising": "target_ising",
    "k colours": "target_potts",
    "graph coloring": "target_potts",
    "external field": "target_ising",
    "warm start": "starts",
    "burnin": "first_fit",
    "convergence diagnostics": "am_i_right",
    "Rao-Blackwell": "draws",
    "parallel tempering": "tempering",
    "magnetization": "temperatures",
    "sudoku": "target_zeros",
    "how to choose a sampler": "samplers",
    "own function": "target_function",
    "custom log probability": "target_function",
    "energy based model": "target_torch",
    "image denoising": "target_ising",
    "image segmentation": "target_potts",
    "factor graph": "target_network",
    "how many samples": "stopping",
    "number of draws": "stopping",
    "initial state": "starts",
    "memory": "limits_computing",
    "junction tree": "exact",
    "multiprocessing": "parallel",
    "SAT": "files",
    "most probable state": "exact",
    "maximum of the distribution": "exact",
    "cardinality constraint": "swaps",
    "fixed number of ones": "swaps",
    "k-subset": "swaps",
    "compare samplers": "samplers",
    "n_jobs": "parallel",
    "samples to numpy": "draws",
    "mcmc convergence": "am_i_right",
    "quickstart": "first_fit",
    "tutorial": "first_fit",
    "getting started": "first_fit",
    "MCMC": "samplers",
    "Binder cumulant": "temperatures",
    "Bayes factor": "tempering",
    "model comparison": "tempering",
    "posterior probability": "spike_slab",
    "inclusion probability": "spike_slab",
    "Kawasaki": "swaps",
    "Swendsen-Wang": "clusters",
    "Bayesian variable selection": "spike_slab",
    "wolff": "clusters",
    "custom target": "target_function",
    "custom distribution": "target_function",
    "log probability function": "target_function",
    "antiferromagnet": "target_ising",
    "clamp": "evidence",
    "markov random field": "target_network",
    "inference": "exact",
    "Bayesian inference": "target_network",
    "sampling without replacement": "swaps",
    "credible intervals": "draws",
    "jax": "limits_computing",
    "rbm": "target_rbm",
    "tsp": "swaps",
    "travelling salesman": "swaps",
    "hopfield": "target_ising",
    "correlation function": "target_ising",
    "correlation length": "target_ising",
    "two-point correlation": "target_ising",
    "xy model": "limits",
    "heisenberg": "limits",
    "clock model": "limits",
    "structure learning": "limits",
    "error bar": "am_i_right",
    "language model": "target_tokens",
    "potts": "target_potts",
    "knapsack": "target_function",
    "draws": "draws",
    "evidence": "evidence",
    "samples": "draws",
    "burn in": "first_fit",
    "burn-in": "first_fit",
    "rhat": "am_i_right",
    "gelman rubin": "am_i_right",
    "save": "saving",
    "temperature": "temperatures",
    "gibbs sampling": "gibbs",
    "QUBO": "target_cuts",
    "maxcut": "target_cuts",
    "time limit": "stopping",
    "optimization": "tempering",
    "random state": "parallel",
    "bayes net": "target_network",
    "pymc": "coming_from",
    "MAP": "exact",
    "MAP estimate": "exact",
    "mpe": "exact",
    "replica exchange": "tempering",
    "autocorrelation time": "draws",
    "spin": "target_ising",
    "PCD": "target_rbm",
    "critical behavior": "temperatures",
    "behavior": "temperatures",
    "color": "target_potts",
    "neighbors": "target_ising",
    "cpt": "target_network",
    # with a word that is nowhere, or is typed wrongly
    "convergence of foo": "am_i_right",
    "how do I foobar draws": "draws",
    "burnin xyzzy": "first_fit",
    "tempring": "tempering",
    "spinn glass": "temperatures",
    "gibbs samplng": "gibbs",
    "bayes facter": "tempering",
    "likelihhood": "target_rbm",
    "convergenze": "am_i_right",
    # of several pages
    "marginals": "probabilities",
    "energy": "target_torch",
}
FIRST = (  # which page leads
    *("draws", "burn in", "evidence", "tempring", "convergenze"),
    *("MAP", "MAP estimate", "mpe", "replica exchange", "spin", "cpt", "marginals", "energy"),
)


def test_search_finds_what_people_type():
    if (node := shutil.which("node")) is None:
        pytest.skip("no Node is installed")
    script = pathlib.Path(__file__).with_name("site_search.js")
    done = subprocess.run([node, script, SITE, *SEARCHES], capture_output=True, check=True)
    answers = json.loads(done.stdout)
    assert {q: a["twice"] for q, a in answers.items() if a["twice"]} == {}
    found = {q: a["first"] for q, a in answers.items()}
    assert {q: found[q] for q, page in SEARCHES.items() if page not in found[q]} == {}
    assert {q: found[q] for q in FIRST if found[q][:1] != [SEARCHES[q]]} == {}
    assert not any("changes" in pages for pages in found.values())


CENTRAL = (
    *("first_fit", "samplers", "targets", "exact", "evidence", "target_torch", "spike_slab"),
    *("classes", "tempering", "draws", "long_runs", "am_i_right"),
)


def test_central_pages_have_a_picture():
    shown = {name: pages()[f"{name}.html"].loaded for name in CENTRAL}
    assert [name for name, files in shown.items() if not any("_images/" in f for f in files)] == []


def test_cards_of_the_landing_page_show_a_picture_of_the_page_that_they_open():
    text = (SITE / "index.html").read_text(encoding="utf-8")
    cards = re.findall(
        r'class="landing-picture docutils.*?src="([^"]+)".*?<p><a[^>]*href="([^"]+)"',
        text,
        re.DOTALL,
    )
    assert len(cards) == 8
    assert [card for card in cards if card[0] not in pages()[card[1]].loaded] == []


def test_figures_say_what_made_them_and_whether_that_has_changed():
    """A benchmark that was edited after its figures were written is marked on their page."""
    doc = SITE.parents[1]
    spec = importlib.util.spec_from_file_location("measured", doc / "_ext" / "measured.py")
    measured = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measured)
    for written in [*doc.glob("*.inc"), *doc.glob("measured/*.inc")]:
        text = written.read_text(encoding="utf-8")
        if (made := re.match(r"\.\. measured:: (python (\S+\.py).*)", text)) is None:
            continue
        on = [
            page
            for page in doc.glob("*.rst")
            if f":: {written.relative_to(doc)}" in page.read_text("utf-8")
        ]
        date, digest = (re.search(rf":{what}: (\S+)", text)[1] for what in ("date", "code"))
        is_old = measured.has_other_code(made[2], digest)
        code = hashlib.sha256((doc.parent / made[2]).read_bytes()).hexdigest()
        assert not (is_old and code.startswith(digest))
        for page in on:
            built = re.sub("<[^>]+>", "", (SITE / f"{page.stem}.html").read_text(encoding="utf-8"))
            note = built.partition(f"{made[1]}, measured {date}")[2].partition("\n")[0]
            assert note
            assert ("; the benchmark" in note) == is_old
            assert is_old <= ("changed since" in note)
        assert on, f"{written.name} is on no page"
