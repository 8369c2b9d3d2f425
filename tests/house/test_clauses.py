"""The list of clauses is well formed, every clause that we say we keep has a test, and no citation rots."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import clauses as catalogue

CLAUSES = catalogue.load_clauses()
IDS = {clause.id for clause in CLAUSES}
DOCUMENTS_COVERED_BY_SECTION = {"6749", "6750", "7009", "7662", "spec"}


def run_clauses(*arguments: str, folder: Path = catalogue.ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(catalogue.ROOT / "scripts" / "clauses"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_id_stands_once() -> None:
    """A mark in a test means one row."""
    ids = [clause.id for clause in CLAUSES]

    assert not {clause_id for clause_id in ids if ids.count(clause_id) > 1}


def test_every_id_names_its_document_and_section() -> None:
    """An id says where the clause stands, in words that can be typed."""
    malformed = [clause.id for clause in CLAUSES if not catalogue.ID_FORM.fullmatch(clause.id)]
    elsewhere = [clause.id for clause in CLAUSES if clause.document not in catalogue.DOCUMENTS]

    assert not malformed
    assert not elsewhere


def test_the_rows_stand_in_the_order_of_the_documents() -> None:
    """A reader finds a row where its section is; decided rows stand last, in groups."""
    assert sorted(CLAUSES, key=catalogue.make_sort_key) == CLAUSES


def test_every_level_and_state_is_known() -> None:
    """A row is kept, owed to a topic that exists, or not ours for a reason."""
    assert not [clause.id for clause in CLAUSES if clause.level not in catalogue.LEVELS]
    assert not [clause.id for clause in CLAUSES if not catalogue.STATE_FORM.fullmatch(clause.state)]


def test_the_level_fits_the_document() -> None:
    """Clauses of the specification have the level SPEC, our decisions DECIDED, and those of RFCs the RFC's words."""
    own_levels = {"spec": {"SPEC"}, "decided": {"DECIDED"}}
    misfits = [
        clause.id
        for clause in CLAUSES
        if clause.level not in own_levels.get(clause.document, {"MUST", "SHOULD", "MAY"})
    ]

    assert not misfits


def test_every_decision_has_a_reason() -> None:
    """A decision without a reason cannot be reviewed; a clause of a document needs none."""
    without = [clause.id for clause in CLAUSES if clause.level == "DECIDED" and not clause.reason]
    needless = [clause.id for clause in CLAUSES if clause.level != "DECIDED" and clause.reason]

    assert not without
    assert not needless


def test_every_text_is_one_sentence_of_ours() -> None:
    """The text says in the present tense what the service does; it does not shout like an RFC."""
    shouting = re.compile(r"\b(?:MUST|SHALL|SHOULD|REQUIRED|RECOMMENDED|OPTIONAL)\b")
    for clause in CLAUSES:
        assert len(clause.text) <= 160, clause.id
        assert clause.text.endswith("."), clause.id
        assert "\n" not in clause.text, clause.id
        assert not shouting.search(f"{clause.text} {clause.reason or ''}"), clause.id


def test_every_mark_names_a_clause() -> None:
    """A test that claims a clause that does not exist proves nothing."""
    unknown = [
        f"{mark.test}: {clause_id}"
        for mark in catalogue.read_marks()
        for clause_id in mark.clause_ids
        if clause_id not in IDS
    ]

    assert not unknown, "no such clause:\n" + "\n".join(unknown)


@pytest.mark.clause("spec-0-strictly-the-rfcs")
def test_every_kept_clause_has_a_test() -> None:
    """Kept is a promise: each MUST, SPEC and DECIDED row that is kept is proved by at least one test."""
    missing = [clause.id for clause in catalogue.find_unproved(CLAUSES, catalogue.read_marks())]

    assert not missing, f"{len(missing)} clauses are kept without a test:\n" + "\n".join(missing)


def test_every_cited_section_has_a_row() -> None:
    """Code cites what we owe: the section itself, a part of it, or what it is a part of."""
    rows = {(clause.document, clause.section) for clause in CLAUSES}
    astray = [
        f"{citation.place}: {catalogue.format_section(citation.document, citation.section)}"
        for citation in catalogue.read_citations()
        if citation.document in DOCUMENTS_COVERED_BY_SECTION
        and not any(
            document == citation.document
            and (catalogue.is_within(section, citation.section) or catalogue.is_within(citation.section, section))
            for document, section in rows
        )
    ]

    assert not astray, "cited, but no clause stands there:\n" + "\n".join(astray)


def test_marks_of_module_class_and_case_reach_the_test(tmp_path: Path) -> None:
    """A clause can be put on everything that pytest lets one mark."""
    (tmp_path / "test_example.py").write_text(
        "import pytest\n"
        "pytestmark = [pytest.mark.long, pytest.mark.clause('module')]\n"
        "@pytest.mark.clause('one', 'two')\n"
        "async def test_function(): ...\n"
        "@pytest.mark.clause('class')\n"
        "class TestClass:\n"
        "    @pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.clause('case'))])\n"
        "    def test_method(self, x): ...\n"
        "def example(): ...\n",
    )

    assert [
        catalogue.Mark("test_example.py::test_function", ("module", "one", "two")),
        catalogue.Mark("test_example.py::TestClass::test_method", ("module", "class", "case")),
    ] == catalogue.read_marks(tmp_path, tmp_path)


def test_a_computed_clause_id_is_refused(tmp_path: Path) -> None:
    """An id that needs the code to run cannot be searched for."""
    (tmp_path / "test_example.py").write_text("@pytest.mark.clause(NAME)\ndef test_function(): ...\n")

    with pytest.raises(ValueError, match="literal string"):
        catalogue.read_marks(tmp_path, tmp_path)


def test_the_document_carries_on_through_a_list_of_sections() -> None:
    """A list is read to its end, over a line break too; a § that follows other words is left alone."""
    text = (
        "Clauses: RFC 6749 §4.1.3 (why), §5.2,\n"
        "    §6 and appendix A.15, A.16; SPEC §4.2\n"
        "interface.md, see §9\n"
        "-- RFC 7009 §2\n"
    )

    assert [
        catalogue.Citation("6749", ("4", "1", "3"), "x:1"),
        catalogue.Citation("6749", ("5", "2"), "x:1"),
        catalogue.Citation("6749", ("6",), "x:2"),
        catalogue.Citation("6749", ("a", "15"), "x:2"),
        catalogue.Citation("6749", ("a", "16"), "x:2"),
        catalogue.Citation("spec", ("4", "2"), "x:2"),
        catalogue.Citation("7009", ("2",), "x:4"),
    ] == list(catalogue.parse_citations(text, "x"))


def test_a_section_takes_in_what_lies_below_it() -> None:
    """Sections are compared by components, not by letters."""
    assert catalogue.is_within(("4", "1", "3"), ("4", "1"))
    assert catalogue.is_within(("4", "1"), ("4", "1"))
    assert not catalogue.is_within(("4", "10"), ("4", "1"))
    assert not catalogue.is_within(("4", "1"), ("4", "1", "3"))


def test_the_tool_shows_a_section_from_any_folder(tmp_path: Path) -> None:
    """A newcomer types document and section, wherever the shell stands."""
    answer = run_clauses("6749", "4.1.3", folder=tmp_path)

    assert answer.returncode == 0, answer.stderr
    assert "6749-4.1.3-redirect-uri-identical  MUST  kept" in answer.stdout
    assert "6749-4.1.2-" not in answer.stdout


def test_the_tool_shows_a_row_with_its_test() -> None:
    """The row of one id comes with the path of the test that proves it."""
    answer = run_clauses("spec-0-strictly-the-rfcs")

    assert answer.returncode == 0, answer.stderr
    assert "test  tests/house/test_clauses.py::test_every_kept_clause_has_a_test" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "output"),
    [
        ([], 0, "usage: clauses"),
        (["--owed"], 0, "gateway lookups ("),
        (["--unproved"], 0, "clauses have no test"),
        (["6749", "99"], 1, "nothing matches 6749 99"),
        (["decided-nothing-of-the-kind"], 1, "nothing matches"),
        (["1234", "4.1"], 2, "no document 1234"),
        (["6749", "four"], 2, "no section four"),
        (["6749", "4.1", "3"], 2, "expected a document and a section"),
        (["--owed", "6749"], 2, "take no clause"),
        (["--guess"], 2, "usage: clauses"),
    ],
)
def test_the_tool_says_what_happened(arguments: list[str], status: int, output: str) -> None:
    """Exit status 0 found, 1 nothing there, 2 wrong usage; a sentence with each."""
    answer = run_clauses(*arguments)

    assert (answer.returncode, True) == (status, output in answer.stdout + answer.stderr), answer
