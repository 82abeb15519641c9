"""The dataset card: facts of the run and of the files, and nothing else."""

from __future__ import annotations

import pytest
import yaml
from example_rows import RIGHT, WRONG, candidate, good_and_bad, row

from cotkit.runs import export
from cotkit.runs.card import _size, write_card
from cotkit.runs.export import export_rows
from cotkit.runs.shapes import BESIDE_MESSAGES, COLUMNS

FACTS = {
    "config": {
        "pipeline": "distill",
        "generator": {"model": "teacher", "api_key_env": "MY_KEY", "api_key": "sk-never", "max_tokens": 512},
        "thresholds": {"correctness": 0.7},
    },
    "report": {
        "name": "demo",
        "given": 5,
        "kept": 3,
        "drops": {"wrong_answer": 2},
        "written": "2026-11-29T10:00:00",
    },
}


def card(path) -> tuple[dict, str]:
    text = path.read_text(encoding="utf-8")
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


def test_the_card_says_what_was_asked_who_answered_and_what_was_lost(tmp_path):
    rows = [*good_and_bad(), row(WRONG, id="x"), row(id="y", drop_reason="timeout")]
    report = export_rows(rows, tmp_path / "sft.jsonl", facts=FACTS)
    header, body = card(tmp_path / "README.md")
    assert report.beside == [str(tmp_path / "README.md")]
    assert header["configs"] == [{"config_name": "sft", "data_files": "sft.jsonl"}]
    assert header["size_categories"] == ["n<1K"] and "license" not in header
    for fact in (
        "| sft.jsonl | trl_sft | 3 | 5 | problems | best | think_tags |",
        "| timeout | 1 |",
        "| wrong_answer | 2 |",
        "| teacher | teacher-2026 | 127.0.0.1:1 | 3 |",
        '| {"temperature": 0.7} | 3 |',
        "| reasoning | abcd | 3 |",
        "| number | true | 3 |",
        "| judge-a | false | 3 |",
        "| generator.api_key_env | MY_KEY |",
        "| generator.max_tokens | 512 |",
        "2026-11-29",
        "No licence was given.",
        "as they state it: not stated",
        report.sha256,
    ):
        assert fact in body, fact
    assert "sk-never" not in body and str(tmp_path) not in body


@pytest.mark.parametrize(
    ("licence", "problems", "header", "words"),
    [
        (None, ["MIT", "MIT"], {"license": "mit"}, "as they state it: MIT."),
        (
            None,
            ["MIT", None],
            {"license": "other", "license_name": "mixed: MIT (1), not stated (1)"},
            "mixed: MIT (1)",
        ),
        (None, [None], {}, "as they state it: not stated."),
        ("CC-BY-4.0", ["MIT"], {"license": "cc-by-4.0"}, "given by its maker: CC-BY-4.0."),
        ("my own", [None], {"license": "other", "license_name": "my own"}, "given by its maker: my own."),
    ],
)
def test_a_licence_is_the_makers_or_the_problems_and_never_invented(
    licence, problems, header, words, tmp_path
):
    rows = [row(RIGHT, id=str(i), licence=stated) for i, stated in enumerate(problems)]
    export_rows(rows, tmp_path / "sft.jsonl", licence=licence, facts=FACTS)
    said, body = card(tmp_path / "README.md")
    assert {key: said[key] for key in ("license", "license_name") if key in said} == header
    assert words in body


def test_a_second_export_of_the_run_joins_the_card_and_a_repeated_one_replaces_itself(tmp_path):
    for format in ("trl_sft", "trl_dpo", "trl_sft"):
        export_rows(
            good_and_bad(),
            tmp_path / f"{format}.jsonl",
            format,
            facts=FACTS,
            licence="mit" if format == "trl_dpo" else None,
        )
    header, body = card(tmp_path / "README.md")
    assert sorted(c["config_name"] for c in header["configs"]) == ["trl_dpo", "trl_sft"]
    assert header["license"] == "mit" and body.count("### trl_sft.jsonl") == 1


NOTE = "`sft.jsonl` was written anew after this card"


def test_a_card_that_is_older_than_its_file_says_so(tmp_path, monkeypatch):
    """The export was killed before it wrote the card, or was to write none, or belongs to another run."""

    def killed(*_):
        raise KeyboardInterrupt

    readme, rows = tmp_path / "README.md", good_and_bad()
    for format in ("sft", "dpo"):
        export_rows(rows, tmp_path / f"{format}.jsonl", f"trl_{format}", facts=FACTS)
    first = readme.read_bytes()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(export, "card_beside", killed)
        export_rows([row(id="new")], tmp_path / "sft.jsonl", facts=FACTS)
    header, body = card(readme)
    assert len(header["configs"]) == 2 and body.startswith(f"\n> {NOTE}")
    export_rows(rows, tmp_path / "dpo.jsonl", "trl_dpo", facts=FACTS)  # it takes nothing over of the old one
    header, body = card(readme)
    assert [c["config_name"] for c in header["configs"]] == ["dpo"] and NOTE not in body
    export_rows(rows, tmp_path / "sft.jsonl", facts=FACTS)
    assert len(readme.read_bytes()) == len(first) and NOTE not in readme.read_text(encoding="utf-8")
    other = {**FACTS, "report": {**FACTS["report"], "name": "other"}}
    for facts in (None, other):
        readme.write_bytes(first)
        export_rows([row(id="new")], tmp_path / "sft.jsonl", facts=facts)
        assert card(readme)[1].startswith(f"\n> {NOTE}")
    assert NOTE not in (tmp_path / "sft.card.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mark", ["{'x': 1}", '{"x": 1}', '{"exports": 1}'])
def test_a_card_whose_mark_was_changed_is_somebody_else_s(tmp_path, mark):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n\n<!-- cotkit-card {mark} -->\n")
    before = readme.read_bytes()
    export_rows(good_and_bad(), tmp_path / "a.jsonl", facts=FACTS)
    assert readme.read_bytes() == before and (tmp_path / "a.card.md").is_file()


def test_an_export_that_is_refused_leaves_the_card_as_it_was(tmp_path):
    export_rows(good_and_bad(), tmp_path / "sft.jsonl", facts=FACTS)
    before = (tmp_path / "README.md").read_bytes()
    with pytest.raises(export.ExportError):
        export_rows([], tmp_path / "sft.jsonl", facts=FACTS, allow_empty=False)
    assert (tmp_path / "README.md").read_bytes() == before


def test_a_name_that_would_end_a_comment_does_not_break_the_card(tmp_path):
    for format in ("trl_sft", "trl_prompt_completion"):
        rows = [row(candidate(model="a --> b"))]
        export_rows(rows, tmp_path / f"{format}.jsonl", format, facts=FACTS)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert text.rpartition("<!-- cotkit-card ")[2].count("-->") == 1
    assert len(card(tmp_path / "README.md")[0]["configs"]) == 2


def test_a_card_of_someone_else_or_of_another_run_is_left_alone(tmp_path):
    (tmp_path / "README.md").write_text("# mine\n", encoding="utf-8")
    report = export_rows(good_and_bad(), tmp_path / "sft.jsonl", facts=FACTS)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "# mine\n"
    assert (tmp_path / "sft.card.md").is_file() and "sft.card.md" in report.warnings[-1]
    (tmp_path / "README.md").unlink()
    export_rows(good_and_bad(), tmp_path / "sft.jsonl", facts=FACTS)
    other = {**FACTS, "report": {**FACTS["report"], "name": "other"}}
    export_rows(good_and_bad(), tmp_path / "dpo.jsonl", "trl_dpo", facts=other)
    assert card(tmp_path / "README.md")[0]["pretty_name"] == "demo"
    assert card(tmp_path / "dpo.card.md")[0]["pretty_name"] == "other"


def test_limits_count_what_is_undecided_hinted_or_seen(tmp_path):
    hinted = candidate(rationalized=True, saw_reference=True, stage="rationalize")
    rows = [row(hinted, id="a"), row(candidate("x --> y | z", None, 0.9, accepted=True), id="b")]
    export_rows(rows, tmp_path / "sft.jsonl", facts={"config": {"note": "a --> b | c"}})
    _, body = card(tmp_path / "README.md")
    assert "1 of 2 traces have no verdict" in body
    assert "1 of 2 traces were written with the answer as a hint" in body
    assert "| note | a --> b \\| c |" in body


def test_an_empty_file_has_a_card_too(tmp_path):
    export_rows([row(WRONG)], tmp_path / "sft.jsonl", facts=FACTS)
    assert "the data set is empty: 1 wrong_answer" in card(tmp_path / "README.md")[1]


@pytest.mark.parametrize(
    ("facts", "words"),
    [({}, "exports"), ({"exports": [{}], "licens": "mit"}, "unknown facts \\['licens'\\]")],
)
def test_a_card_without_files_or_with_unknown_facts_is_refused(facts, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        write_card(facts, tmp_path)


def test_each_file_has_a_name_of_its_own_that_the_loader_takes(tmp_path):
    names = ["sft.jsonl", "sft.json", "a b [1].jsonl", "run*x.jsonl"]
    for name in names:
        export_rows([row(RIGHT)], tmp_path / name, facts=FACTS)
    header, _ = card(tmp_path / "README.md")
    found = {config["config_name"]: config["data_files"] for config in header["configs"]}
    assert found == {
        "sft-jsonl": "sft.jsonl",
        "sft-json": "sft.json",
        "a b [1]": "a b [[]1].jsonl",  # data_files is a pattern
        "run-x": "run[*]x.jsonl",
    }
    assert [info["config_name"] for info in header["dataset_info"]] == list(found)


def test_the_card_names_the_types_that_a_loader_would_guess_from_the_first_rows(tmp_path):
    """A column that is null in the first 10 MB; here in the first rows of a small block."""
    rows = [row(RIGHT, id=str(n), type="algebra" if n == 199 else None) for n in range(200)]
    export_rows(rows, tmp_path / "m.jsonl", "messages", facts=FACTS)
    (info,) = card(tmp_path / "README.md")[0]["dataset_info"]
    message = [{"name": "role", "dtype": "string"}, {"name": "content", "dtype": "string"}]
    assert info["features"][0] == {"name": "messages", "list": message}
    types = {feature["name"]: feature["dtype"] for feature in info["features"][1:]}
    declared = {"string": "string", "bool": "bool", "int": "int64", "float": "float64"}
    assert types == {name: declared[COLUMNS[name][0]] for name in BESIDE_MESSAGES}
    datasets = pytest.importorskip("datasets")
    read = datasets.load_dataset(str(tmp_path), "m", chunksize=4096, cache_dir=str(tmp_path / "cache"))
    assert read["train"]["type"][-1] == "algebra" and len(read["train"]) == 200


@pytest.mark.parametrize("rows", [0, 999, 10**3, 10**6, 10**7 - 1, 10**7, 2 * 10**8, 10**12])
def test_the_size_is_one_of_the_hubs(rows):
    low_high = {999: "n<1K", 10**3: "1K<n<10K", 10**6: "1M<n<10M", 10**7 - 1: "1M<n<10M"}
    low_high |= {0: "n<1K", 10**7: "10M<n<100M", 2 * 10**8: "100M<n<1B", 10**12: "n>1T"}
    assert _size(rows) == low_high[rows]
