"""Problems that stay in their file are the same problems, checked the same way, in memory of a known size."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
import tracemalloc
import warnings

import pytest
from mock_server import Reply

import cotkit
from cotkit.problems import Problem, ProblemError, ProblemFile, data_folder, load_problems, loading, sources

PLACES = [(0, None), (3, None), (0, -2), (None, None)]


@pytest.fixture
def write(write):
    """`write(content)`, of a JSON-lines file."""
    return lambda content, name="p.jsonl": write(name, content)


def rows(count, **more):
    return [
        {"id": f"p{n}", "problem": f"What is {n} + {n}?", "answer": str(2 * n), **more} for n in range(count)
    ]


def loaded(path, **options):
    """The problems and the warnings, or what was raised."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            problems = list(load_problems(path, **options))
        except ValueError as error:
            problems = type(error), str(error), getattr(error, "faults", None)
    return problems, [(str(warning.message), warning.filename) for warning in said]


def the_same_both_ways(path, **options):
    whole = loaded(path, **options)
    assert loaded(path, stream=True, **options) == whole
    return whole[0]


SOUND = {
    "ids": rows(5),
    "no ids": [{"problem": f"p{n}", "reference": "1"} for n in range(5)],
    "GSM8K": [{"question": f"q{n}", "answer": f"so\n#### {n}"} for n in range(3)],
    "some without a reference": [{"problem": "x", "answer": "1"}, {"problem": "y", "answer": None}],
    "blank lines": '\n{"problem": "a"}\n\n \n{"problem": "b"}\n\n{"problem": "c", "answer": "1"}\n\n',
    "CRLF": '{"problem": "a"}\r\n\r\n{"problem": "b"}\r\n',
    "a byte order mark": b'\xef\xbb\xbf{"problem": "a"}\n{"problem": "b"}\n',
    "line separators": '{"problem": "one\u2028row\x85 here"}\n{"problem": "two"}',
    "lone surrogates": '{"id": "\ud800", "problem": "raw \udfff"}\n{"problem": "\\ud800", "id": "b"}\n',
    "NUL": [{"problem": "a\x00b"}, {"problem": "漢字 🧮"}],
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_file_gives_the_same_problems(write, name):
    assert isinstance(the_same_both_ways(write(SOUND[name])), list)


DAMAGED = {
    "a torn last line": '{"problem": "x"}\n{"problem": "y',
    "lines that are no JSON among others": '{"problem": "x"}\n{torn\n\n{"problem": 3}\n["a"]\n3\n',
    "nothing but torn lines": "{torn\n{torn\n",
    "a JSON list": '\n [{"problem": "x"}]',
    "a JSON list that is not UTF-8": b'[{"problem": "caf\xe9"}]\n',
    "Latin-1": '{"problem": "one"}\n{torn\n{"problem": "caf\xe9"}\n'.encode("latin-1"),
    "UTF-16": '{"problem": "one"}\n'.encode("utf-16"),
    "a character cut in two": b'{"problem": "\xe2\x82',
    "nothing": "\n \n",
    "deep": "[" * 100_000,
    "deep, in a row": '{"problem": ' + "[" * 100_000,
    "texts, no objects": ['"What is 1 + 1?"', "x"],
    "no known field": [{"frage": "x", "antwort": "y"}],
    "two forms": [{"problem": "x"}, {"question": "y"}],
    "two forms of reference": [{"problem": "x", "solution": "1"}, {"problem": "y", "answer": "1"}],
    "many faults": [{"problem": f"p{n}", "type": 1} for n in range(4)] + [{"problem": 4}] * 4,
    "an id twice": [*rows(3), {"id": "p1", "problem": "other", "answer": "1"}],
    "a text twice": [*rows(3), {"id": "x", "problem": "What is 1 + 1?", "answer": "1"}],
    "a row twice": rows(3) * 2,
    "faults and repeats": [
        *rows(3),
        {"id": "p1", "problem": 3},
        *rows(2),
        {"problem": None},
        {"problem": None},
    ],
    "ids in some rows": [{"id": "a", "problem": "x"}, {"problem": "y"}],
    "1 and '1'": [{"id": 1, "problem": "x"}, {"id": "1", "problem": "y"}],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_in_the_same_words(write, name):
    kind, message, faults = the_same_both_ways(write(DAMAGED[name]))
    assert kind is ProblemError and message and faults


@pytest.mark.parametrize(
    "given",
    [
        rows(3),
        rows(3) * 2,
        [*rows(2), {"id": "p0", "problem": "y"}, {"id": "p0-2", "problem": "z"}, {"id": "b", "problem": "y"}],
        [{"problem": "x", "answer": None}, {"problem": "x", "answer": "1"}, {"problem": "y", "answer": "1"}],
        [{"problem": "x"}, {"problem": 3}, {"problem": "x"}],
    ],
)
def test_duplicates_are_fixed_alike(write, given):
    the_same_both_ways(write(given), duplicates="fix")


@pytest.mark.parametrize("duplicates", ["error", "fix"])
@pytest.mark.parametrize("more", [[], [{"id": "x", "problem": "What is 3 + 3?", "answer": "6"}]])
def test_rows_whose_hashes_are_equal_are_compared_themselves(write, monkeypatch, more, duplicates):
    path = write(rows(30) + more)
    whole = loaded(path, duplicates=duplicates)
    monkeypatch.setattr(loading, "hash", lambda value: 7, raising=False)
    assert the_same_both_ways(path, duplicates=duplicates) == whole[0]
    assert (len(whole[0]) == 30) == (not more or duplicates == "fix")


def test_own_column_names_are_mapped(write):
    path = write([{"uid": n, "text": f"p{n}", "gold": "4", "answer": "x"} for n in range(3)])
    the_same_both_ways(path, fields={"id": "uid", "problem": "text", "reference": "gold"})
    the_same_both_ways(path, fields={"problem": "txt"})
    the_same_both_ways(path, fields={"question": "text"})


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 3},
        {"limit": 99},
        {"shuffle": True},
        {"shuffle": True, "seed": 7, "limit": 4},
        {"type": "b"},
        {"type": ["a", "b"], "limit": 5, "shuffle": True},
        {"type": "d"},
        {"type": []},
        {"limit": 0},
        {"split": "test"},
    ],
)
def test_limit_shuffle_and_type_select_the_same(write, options):
    given = [{"problem": f"p{n}", "type": "abc"[n % 3]} for n in range(20)]
    whole = the_same_both_ways(write(given), **options)
    file = load_problems(write(given), stream=True)
    if isinstance(whole, list):
        chosen = load_problems(file, **options)
        assert isinstance(chosen, ProblemFile) and list(chosen) == whole
    else:
        with pytest.raises(whole[0]):
            load_problems(file, **options)


def test_it_is_a_sequence(write):
    path = write(rows(7))
    whole, file = load_problems(path), load_problems(path, stream=True)
    assert isinstance(file, ProblemFile) and len(file) == 7 and load_problems(file) is file
    assert [file[n] for n in range(-7, 7)] == [whole[n] for n in range(-7, 7)]
    assert [list(file[a:b]) for a, b in PLACES] == [whole[a:b] for a, b in PLACES]
    assert list(file[1::3][::-1]) == whole[1::3][::-1] == list(reversed(file[1::3]))
    assert whole[2] in file and file.index(whole[2]) == 2 and not file[:0]
    assert [*zip(file, file, strict=True)] == [*zip(whole, whole, strict=True)]  # both at one time
    for wrong in (7, -8):
        with pytest.raises(IndexError):
            file[wrong]
    copy = pickle.loads(pickle.dumps(file[2:4]))
    assert list(copy) == whole[2:4]
    assert len(pickle.dumps(load_problems(write(rows(5000), "q.jsonl"), stream=True)[:2])) < 1000
    assert repr(file).endswith("p.jsonl': 7 problems)")


def test_ids_that_are_numbers_in_the_file_stay_with_their_rows(write):
    file = load_problems(write([{"problem": f"p{n}"} for n in range(9)]), stream=True)
    for part in (file, file[3:], file[::2][1:], load_problems(file, shuffle=True), load_problems(file, 2)):
        assert all(problem.problem == f"p{problem.id}" for problem in part)
        assert part[-1] == list(part)[-1]


def test_it_is_found_after_the_folder_was_left(write, tmp_path, monkeypatch):
    write(rows(3))
    monkeypatch.chdir(tmp_path)
    file = load_problems("p.jsonl", stream=True)
    monkeypatch.chdir("/")
    assert len(list(file)) == 3 and file.name == "p.jsonl"


CHANGES = {
    "a row more": lambda path: path.open("a").write('{"problem": "new"}\n'),
    "another text": lambda path: path.write_text(path.read_text().replace("What", "Wham")),
    "the same again": lambda path: path.write_text(path.read_text()),
    "another file": lambda path: os.replace(path.with_name("other"), path),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_has_changed_since_is_refused(write, change):
    path = write(rows(20))
    write(rows(21), "other")
    os.utime(path, ns=(0, 0))
    file = load_problems(path, stream=True)
    reading = iter(file)
    next(reading)
    CHANGES[change](path)
    for read in (list, lambda file: file[3], lambda file: file[5:][0]):
        with pytest.raises(ProblemError, match=r"p\.jsonl has changed since it was checked.*load it again"):
            read(file)
    if change == "another file":  # what is being read is still the old one
        assert len(list(reading)) == 19
    else:
        with pytest.raises(ProblemError, match="has changed"):
            next(reading)


def test_a_file_that_changes_while_it_is_checked_is_refused(write, monkeypatch):
    path, build = write(rows(20)), loading.build

    def changing(row, *rest):
        os.utime(path, ns=(1, 1))
        return build(row, *rest)

    monkeypatch.setattr(loading, "build", changing)
    with pytest.raises(ProblemError, match="has changed"):
        load_problems(path, stream=True)


def test_what_cannot_be_streamed_is_said(write):
    for source in (
        write("problem\nx\n", "p.csv"),
        rows(2),
        [Problem(id="a", problem="x")],
        "some-org/some-set",
    ):
        with pytest.raises(ValueError, match=r"stream=True reads .*\.jsonl.*one object a line"):
            load_problems(source, stream=True)
    with pytest.raises(ValueError, match='True, False or "auto"'):
        load_problems(rows(2), stream="yes")


def test_a_large_file_is_streamed_on_its_own(write, monkeypatch):
    small, large, table = (
        write(rows(3), "small.jsonl"),
        write(rows(99), "large.jsonl"),
        write("problem\nx\n", "t.csv"),
    )
    monkeypatch.setattr(sources, "STREAM_FROM", large.stat().st_size)
    assert isinstance(load_problems(large, stream="auto"), ProblemFile)
    for source in (small, table, rows(2)):
        assert isinstance(load_problems(source, stream="auto"), list)
    assert isinstance(load_problems(large), list)


def test_shipped_problems_are_the_same(tmp_path):
    for path in (data_folder() / "word_problems.jsonl", *(data_folder() / "seeds").glob("*.jsonl")):
        the_same_both_ways(path)
        the_same_both_ways(path.stem, limit=5, shuffle=True, seed=1)


def test_gsm8k_is_the_same(shared_data):
    the_same_both_ways(shared_data / "gsm8k_test.jsonl")
    the_same_both_ways(shared_data / "gsm8k_test.jsonl", limit=100, shuffle=True)


def most_bytes(work):
    tracemalloc.start()
    try:
        kept = work()
        return tracemalloc.get_traced_memory()[1], kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 100), ({"duplicates": "fix"}, 100), ({"shuffle": True}, 200), ({"type": "t"}, 100)],
)
def test_memory_for_a_further_problem_is_bounded(write, options, most):
    """All of loading, and going over the problems; the texts are 1,000 characters long."""

    def peak(count):
        path = write([{**row, "note": "x" * 1000} for row in rows(count, type="t")])

        def work():
            problems = load_problems(path, stream=True, **options)
            assert sum(1 for problem in problems if problem.type) == count
            return problems

        return most_bytes(work)[0]

    assert (peak(12_000) - peak(2_000)) / 10_000 <= most


def test_what_takes_problems_takes_them_from_the_file(serve, write, tmp_path):
    server = serve(lambda request: "It is \\boxed{4}.")
    path = write([{"problem": f"{n} + {4 - n}?", "answer": "4" if n else "5"} for n in range(5)])
    given = [load_problems(path), load_problems(path, stream=True), load_problems(path, stream=True)]
    runs = [
        cotkit.distill(
            problems,
            cotkit.ChatModel("mock", server.base_url),
            max_iterations=0,
            run=tmp_path / name,
            show="none",
        )
        for name, problems in zip("abb", given, strict=True)
    ]
    assert server.calls == 10  # the last one found everything done
    seen = [[(r.id, r.index, r.problem, r.accepted, r.drop_reason) for r in run.records()] for run in runs]
    assert seen[0] == seen[1] == seen[2] and [row[3] for row in seen[0]] == [False, *[True] * 4]
    assert runs[0].runtime["data_hash"] == runs[1].runtime["data_hash"]
    assert len(cotkit.problems_frame(given[1])) == 5


def test_a_file_that_changes_during_a_run_ends_it_and_the_same_call_goes_on(serve, write, tmp_path):
    path = write(rows(9))

    def script(request):
        if server.calls == 4:
            os.utime(path, ns=(1, 1))
        return "It is \\boxed{4}."

    server = serve(script)
    model = cotkit.ChatModel("mock", server.base_url, max_concurrency=1)
    options = {"max_iterations": 0, "run": tmp_path / "r", "show": "none"}
    with pytest.raises(ProblemError, match="has changed since it was checked"):
        cotkit.distill(load_problems(path, stream=True), model, **options)
    report = cotkit.open_run(tmp_path / "r").report
    assert (report["given"], report["drops"].pop("unfinished"), report["complete"]) == (9, 5, False)
    run = cotkit.distill(load_problems(path, stream=True), model, **options)
    assert run.report["complete"] and server.calls == 9


def test_what_is_in_flight_when_the_file_changes_is_finished(serve, write, tmp_path):
    path = write(rows(40))

    def script(request):
        if request.number == 4:
            os.utime(path, ns=(1, 1))
        return Reply("It is \\boxed{4}.", delay=0.02 + 0.3 * (request.number % 8 > 0))

    server = serve(script)
    model = cotkit.ChatModel("mock", server.base_url, max_concurrency=8)
    with pytest.raises(ProblemError, match="has changed"):
        given = load_problems(path, stream=True)
        cotkit.distill(given, model, max_iterations=0, run=tmp_path / "r", show="none")
    report = cotkit.open_run(tmp_path / "r").report
    assert 8 <= 40 - report["drops"]["unfinished"] == report["ledger"]["calls"] == server.calls < 40
    assert "has changed" in report["stopped"]


def test_shards_read_their_problems_from_the_file(serve, write, tmp_path):
    server = serve(lambda request: "It is \\boxed{4}.")
    path = write([{"problem": f"{n} + {4 - n}?", "answer": "4"} for n in range(7)])
    model = cotkit.ChatModel("mock", server.base_url)
    with concurrent.futures.ProcessPoolExecutor(
        2, mp_context=multiprocessing.get_context("spawn")
    ) as executor:
        run = cotkit.distill(
            load_problems(path, stream=True),
            model,
            max_iterations=0,
            run=tmp_path / "r",
            show="none",
            executor=executor,
            shards=3,
        )
    assert [(r.index, r.id, r.problem, r.accepted) for r in run.records()] == [
        (n, str(n), f"{n} + {4 - n}?", True) for n in range(7)
    ]
    assert server.calls == 7
