"""The page of several seeds is what the recorded reports say."""

import pytest

from seeds import PAGE, keep, merge, page, spread, told

REPORT = """# dissecting/one

About it. Scale laptop, seed 3; torch 2.13.0+cpu, 2026-11-19: `continua reproduce x --seed 3`.

Of 10 steps:

| a | b |
|---|---|
| x | 1.0 % |

A sentence.
"""


def test_the_page_is_what_the_script_writes():
    assert PAGE.read_text("utf-8") == page(), "run: python benchmarks/seeds.py"


def test_tables_come_with_the_line_that_announces_them():
    assert told(REPORT) == ["Of 10 steps:", "| a | b |\n|---|---|\n| x | 1.0 % |"]
    assert told(REPORT.partition("Of 10")[0] + "A sentence.") == ["A sentence."]


def test_numbers_that_differ_are_averaged():
    texts = [f"| T-10 | `Fourier(5)` | {value} % |" for value in ("1.00", "2.00", "3.00")]
    assert merge(texts, ["0", "1", "2"]) == "| T-10 | `Fourier(5)` | 2.00 ± 1.00 % |"


def test_sentences_with_other_words_stay_apart():
    assert merge(["it holds", "it fails"], ["0", "1"]) == "- Seed 0: it holds\n- Seed 1: it fails"


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (("5", "5"), "5"),
        (("1,000", "1,002"), "1,001.0 ± 1.4"),
        (("-1.5", "-2.5"), "-2.0 ± 0.7"),
        (("1e-05", "3e-05"), "2e-05 ± 1e-05"),
    ],
)
def test_spread(found, shown):
    assert spread(found) == shown


def test_reports_are_kept_by_study_and_seed(tmp_path, monkeypatch):
    monkeypatch.setattr("seeds.REPORTS", tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / "report.md").write_text(REPORT)
    keep(run)
    assert (tmp_path / "dissecting-one-3.md").read_text() == REPORT
