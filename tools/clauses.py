"""Parsers of tests/clauses.toml, of the marks of tests and of the citations in code.

This file uses only the standard library, since `scripts/clauses` imports it before packages are installed.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLAUSES_FILE = ROOT / "tests" / "clauses.toml"

DOCUMENTS = ("6749", "6750", "6819", "7009", "7636", "7662", "8414", "9207", "9493", "9728", "spec", "decided")
LEVELS = ("MUST", "SHOULD", "MAY", "SPEC", "DECIDED")
LEVELS_TO_PROVE = ("MUST", "SPEC", "DECIDED")
TOPICS = (
    "gateway lookups",
    "more than one machine",
)

SECTION = r"(?:[0-9]+|[a-z])(?:\.[0-9]+)*"
SLUG = r"[a-z0-9]+(?:-[a-z0-9]+)*"
ID_FORM = re.compile(
    rf"(?P<document>[0-9]{{4}}|spec)-(?P<section>{SECTION})-{SLUG}|(?P<decided>decided)-{SLUG}",
)
STATE_FORM = re.compile(rf"kept|owed: (?:{'|'.join(TOPICS)})|not ours: \S.*")

# The sections of one list are separated by commas, words, a remark in brackets and, in a wrapped comment, the sign of
# the next comment line. `Appendix` is needed only once: `Appendix A.15, A.16`.
CITED_SECTION = re.compile(
    r"(?:§{1,2}\s?|[Aa]ppendix\s+)(?P<numbered>(?:[0-9]+|[A-Z]\b)(?:\.[0-9]+)*)|(?P<bare>\b[A-Z]\.[0-9]+)",
)
ANY_CITED_SECTION = re.sub(r"\?P<\w+>", "?:", CITED_SECTION.pattern)
BETWEEN_SECTIONS = r"(?:[\s,;#-]|\band\b|\bor\b|\bto\b|\([^()]*\))+"
CITED_LIST = re.compile(
    r"(?:RFC[\s#-]+(?P<number>[0-9]{4})|\bSPEC)[\s#-]+"
    rf"(?P<sections>(?:{ANY_CITED_SECTION})(?:{BETWEEN_SECTIONS}(?:{ANY_CITED_SECTION}))*)",
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Section = tuple[str, ...]


@dataclass(frozen=True)
class Clause:
    """One row of clauses.toml."""

    id: str
    level: str
    text: str
    state: str
    reason: str | None = None

    @property
    def document(self) -> str:
        """The document that the id begins with."""
        return self.id.partition("-")[0]

    @property
    def section(self) -> Section:
        """The components of the section that the id names; empty for a decided row."""
        match = ID_FORM.fullmatch(self.id)
        return parse_section(match["section"]) if match and match["section"] else ()

    @property
    def topic(self) -> str | None:
        """The topic of the later issue that will keep this clause, or None."""
        return self.state.removeprefix("owed: ") if self.state.startswith("owed: ") else None

    @property
    def needs_proof(self) -> bool:
        """True if the clause is kept and its level requires a test."""
        return self.state == "kept" and self.level in LEVELS_TO_PROVE


@dataclass(frozen=True)
class Mark:
    """One test with the ids of the clauses that it proves."""

    test: str
    clause_ids: tuple[str, ...]


@dataclass(frozen=True)
class Citation:
    """One place in the code that names a section of a document."""

    document: str
    section: Section
    place: str


def parse_section(text: str) -> Section:
    """Split a section number, so that 4.1 covers 4.1.3 and not 4.10."""
    return tuple(text.lower().split("."))


def is_within(section: Section, wider: Section) -> bool:
    """Return whether a section is the wider section or a part of it."""
    return section[: len(wider)] == wider


def format_section(document: str, section: Section) -> str:
    """Name a section as the code cites it."""
    name = "SPEC" if document == "spec" else f"RFC {document}"
    return f"{name} §{'.'.join(section).upper()}"


def make_sort_key(clause: Clause) -> tuple[int, list[tuple[bool, int, str]]]:
    """Return the key that sorts clauses by document and section. Appendices follow the numbered sections."""
    components = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in clause.section]
    return DOCUMENTS.index(clause.document), components


def load_clauses(path: Path = CLAUSES_FILE) -> list[Clause]:
    """Read all rows in the order of the file. Raises ValueError if a key of a row is missing or unknown."""
    clauses = []
    for row in tomllib.loads(path.read_text(encoding="utf-8"))["clause"]:
        try:
            clauses.append(Clause(**row))
        except TypeError as error:
            raise ValueError(f"{path.name}, row {row.get('id', row)}: {error}") from None
    return clauses


def read_marks(folder: Path = ROOT / "tests", root: Path = ROOT) -> list[Mark]:
    """Find every test under a folder, with the clause ids of its own marks, its class and its module."""
    return [
        mark
        for path in sorted(folder.rglob("test_*.py"))
        for mark in read_marks_of_module(path, path.relative_to(root).as_posix())
    ]


def read_marks_of_module(path: Path, name: str) -> Iterator[Mark]:
    """Find the tests of one module in its syntax tree. The module is not imported."""
    module = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    yield from read_marks_of_body(module, name, ())


def read_marks_of_body(holder: ast.Module | ast.ClassDef, name: str, outer_ids: tuple[str, ...]) -> Iterator[Mark]:
    """Find the tests of a module or a class. The marks of the holder apply to each test."""
    holder_ids = outer_ids + tuple(find_clause_ids(find_pytestmark(holder), name))
    for node in holder.body:
        if isinstance(node, FunctionNode) and node.name.startswith("test"):
            own_ids = find_clause_ids(node.decorator_list, name)
            yield Mark(f"{name}::{node.name}", tuple(dict.fromkeys([*holder_ids, *own_ids])))
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            class_ids = holder_ids + tuple(find_clause_ids(node.decorator_list, name))
            yield from read_marks_of_body(node, f"{name}::{node.name}", class_ids)


def find_pytestmark(holder: ast.Module | ast.ClassDef) -> list[ast.expr]:
    """Find the values given to `pytestmark` in a module or a class."""
    values: list[ast.expr] = []
    for node in holder.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            values += [node.value] if node.value else []
    return values


def find_clause_ids(expressions: list[ast.expr], name: str) -> Iterator[str]:
    """Find the arguments of `mark.clause(…)`, including marks on one case of a parametrized test."""
    for expression in expressions:
        for node in ast.walk(expression):
            if not (isinstance(node, ast.Call) and is_clause_mark(node.func)):
                continue
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{name}, line {argument.lineno}: a clause id is a literal string")
                yield argument.value


def is_clause_mark(function: ast.expr) -> bool:
    """Return whether an expression is `pytest.mark.clause` or `mark.clause`."""
    if not (isinstance(function, ast.Attribute) and function.attr == "clause"):
        return False
    holder = function.value
    return (isinstance(holder, ast.Attribute) and holder.attr == "mark") or (
        isinstance(holder, ast.Name) and holder.id == "mark"
    )


def find_tests_by_clause(marks: list[Mark]) -> dict[str, list[str]]:
    """Return the tests of each clause id."""
    tests: dict[str, list[str]] = {}
    for mark in marks:
        for clause_id in mark.clause_ids:
            tests.setdefault(clause_id, []).append(mark.test)
    return tests


def read_citations(folder: Path = ROOT / "service", root: Path = ROOT) -> list[Citation]:
    """Find every section that the Python and Lua code under a folder cites."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in {".py", ".lua"})
    return [
        citation
        for path in paths
        for citation in parse_citations(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())
    ]


def parse_citations(text: str, name: str) -> Iterator[Citation]:
    """Find the citations in a text. `RFC 6749 §4.1.3, §5.2` cites two sections; a bare § is ignored."""
    for listed in CITED_LIST.finditer(text):
        document = listed["number"] or "spec"
        for cited in CITED_SECTION.finditer(text, listed.start("sections"), listed.end("sections")):
            line = text.count("\n", 0, cited.start()) + 1
            section = parse_section(cited["numbered"] or cited["bare"])
            yield Citation(document, section, f"{name}:{line}")


def find_unproved(clauses: list[Clause], marks: list[Mark]) -> list[Clause]:
    """Return the clauses that need a test and have none."""
    tests = find_tests_by_clause(marks)
    return [clause for clause in clauses if clause.needs_proof and clause.id not in tests]
