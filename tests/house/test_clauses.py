"""The list of clauses is well formed, every clause that we say we keep has a test, and no citation rots."""

import pytest

from tools import clauses as catalogue

CLAUSES = catalogue.load_clauses()
IDS = {clause.id for clause in CLAUSES}
DOCUMENTS_COVERED_BY_SECTION = {"6749", "6750", "7009", "7662", "spec"}


def test_the_rows_are_well_formed() -> None:
    """The rows stand in the order of the documents; decided rows stand last, in groups, each with its reason."""
    own_levels = {"spec": {"SPEC"}, "decided": {"DECIDED"}}

    assert len(IDS) == len(CLAUSES)
    assert sorted(CLAUSES, key=catalogue.make_sort_key) == CLAUSES
    for clause in CLAUSES:
        assert catalogue.ID_FORM.fullmatch(clause.id), clause.id
        assert clause.document in catalogue.DOCUMENTS, clause.id
        assert clause.level in own_levels.get(clause.document, {"MUST", "SHOULD", "MAY"}), clause.id
        assert catalogue.STATE_FORM.fullmatch(clause.state), clause.id
        assert (clause.level == "DECIDED") == bool(clause.reason), clause.id


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


def test_every_threat_with_a_defence_has_a_test() -> None:
    proved = catalogue.find_tests_by_clause(catalogue.read_marks())
    threats = [clause for clause in CLAUSES if clause.document == "6819" and clause.section[0] == "4"]

    assert threats
    assert [clause.id for clause in threats if clause.state == "kept" and clause.id not in proved] == []


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
