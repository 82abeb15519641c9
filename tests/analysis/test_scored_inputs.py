"""What goes into `tune_thresholds` at its edges: lines that shift columns, labels nobody can read."""

from __future__ import annotations

import pytest

from cotkit.analysis import scored_frame
from cotkit.runs import RunFolder, open_run, read_labels


def test_a_blank_line_with_a_field_too_many_shifts_no_column(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,correct,score_a\n,,,\na,1,0.5\n")
    with pytest.raises(ValueError, match="line 2 has 4 fields, the header 3"):
        scored_frame(path)


def test_blank_lines_are_skipped_and_the_others_keep_their_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("\nid,correct,score_a\n\na,1,0.5\n   \nb,0,0.5\n")
    assert scored_frame(path)["file_line"].tolist() == [4, 6]


def test_persons_differ_only_about_one_and_the_same_trace(tmp_path):
    with RunFolder(tmp_path / "run", {}):
        pass
    line = '{"id": "0", "candidate": 0, "label": "%s", "by": %s, "trace": "%s"}\n'
    path = tmp_path / "run" / "labels.jsonl"
    path.write_text(line % ("good", '["ann"]', "x") + line % ("bad", '"bob"', "y"))
    run = open_run(tmp_path / "run")
    assert not read_labels(run)["0", 0]["disputed"]
    path.write_text(line % ("good", '"ann"', "y") + line % ("bad", '"bob"', "y"))
    assert read_labels(run)["0", 0]["disputed"]
