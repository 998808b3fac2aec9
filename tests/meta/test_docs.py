"""The documents say what the code does: reference pages are fresh, links lead somewhere, examples run."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.bootstrap import find_handlers
from dagmaster.session import blocking

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@cache
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_are_fresh():
    stale = [
        path.name for path, text in generator().pages().items() if path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "make docs"


def test_every_name_of_the_source_documents_has_a_place_that_exists():
    names = generator().source_names()
    assert [problem for name in names for problem in name.problems] == []
    assert {name.section for name in names} >= {"routes", "pages", "tables", "handlers", "metrics", "queues"}
    assert [
        name.name for name in names if not set(name.documents.split()) <= set(generator().DOCUMENTS)
    ] == []


@pytest.mark.parametrize(
    "target",
    [
        *(
            "route GET /api/v1/no_such",
            "page /ui/no_such",
            "table dag_no_such",
            "handler no.such",
            "workflow no_such",
        ),
        *(
            "metric no_such",
            "setting DAGMASTER_NO_SUCH",
            "command jobs no_such",
            "python no_such",
            "later no_such",
        ),
        *("code engine/advance.py:no_such", "code engine/no_such.py:advance", "file no/such"),
    ],
)
def test_a_place_that_does_not_exist_is_noticed(target):
    with pytest.raises(KeyError):
        generator().Places().describe(*target.partition(" ")[::2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def yaml_examples() -> list[tuple[str, str]]:
    result = []
    for page in PAGES:
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        result += [
            (f"{page.name}-{number}", block) for number, block in enumerate(blocks) if "nodes:" in block
        ]
    return result


@pytest.mark.parametrize(("name", "text"), yaml_examples(), ids=[name for name, _ in yaml_examples()])
def test_every_workflow_in_the_documents_is_valid(name, text):
    assert compile_text(text, name, handlers=find_handlers(), allow_missing_handlers=True).graph.specs


def python_examples() -> list[tuple[str, str]]:
    result = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        # Those of the clients need a server: the test of the tutorial executes them.
        blocks = [block for block in blocks if "Client(" not in block]
        # The blocks of a page are one program: a later one uses what an earlier one has.
        result += [(page.name, "\n".join(blocks))] if blocks else []
    return result


@pytest.mark.parametrize(("name", "code"), python_examples(), ids=[name for name, _ in python_examples()])
def test_every_python_example_of_the_documents_runs(name, code, tmp_path, monkeypatch):
    file = tmp_path / f"{Path(name).stem.lower()}_example.py"
    file.write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(file.stem)
    for each in [each for each in vars(module) if each.startswith("test_")]:
        test = getattr(module, each)
        test(*[tmp_path for _ in inspect.signature(test).parameters])


def test_the_architecture_is_reported_in_at_most_150_lines():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 150


def named_files(text: str) -> list[Path]:
    """Return the files or folders that a path in the architecture stands for: of the project, or of a package."""
    braces = re.search(r"\{(.*)\}", text)
    if braces:
        return [file for part in braces[1].split(",") for file in named_files(text.replace(braces[0], part))]
    source = ROOT / "src" / "dagmaster"
    anchors = (ROOT, source, source / "store" / "postgres")
    return [file for anchor in anchors for file in anchor.glob(text)] or [*source.rglob(text)]


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
IN_FILE = re.compile(r"((?:`[^`/. ]+`(?:, | and | or )?)+)(?: in| of| \()\s?`([\w/.{},*]+\.(?:py|sql))`")


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`([\w/.{},*-]+(?:\.py|\.sql|\.md|\.toml|/))`", ARCHITECTURE)))
)
def test_every_file_that_the_architecture_names_exists(path):
    assert named_files(path.rstrip("/")), path


@pytest.mark.parametrize(("names", "path"), sorted(set(IN_FILE.findall(ARCHITECTURE))))
def test_what_the_architecture_places_in_a_file_is_there(names, path):
    text = "\n".join(file.read_text(encoding="utf-8") for file in named_files(path))
    missing = [name for name in re.findall(r"`(\w+)", names) if not re.search(rf"\b{name}\b", text)]
    assert missing == [], path


def test_no_file_of_the_source_is_too_long():
    source = ROOT / "src" / "dagmaster"
    large = {
        name: lines
        for file in source.rglob("*.py")
        if (name := str(file.relative_to(source)))
        and (lines := len(file.read_text(encoding="utf-8").splitlines())) > 450
    }
    assert large == {}


def test_the_reference_of_python_has_every_call_about_graphs_and_jobs():
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"(?m)^## (.+)$", text))
    assert {*blocking.__all__, "create_task", "Group", "map_values"} <= sections
