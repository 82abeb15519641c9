"""Runs of any size: what is in memory for each of their rows does not depend on what is in it."""

from __future__ import annotations

import json
import os
import tracemalloc

import httpx
import openai
import pytest
from test_folder import problem, row, write

import cotkit
from cotkit.runs import JournalError, RunError, RunFolder, open_run


def many(path, count, dropped=0, text="x" * 2000):
    """A run of `count` kept rows and `dropped` others, finished from the last to the first."""
    write(path)
    lines = {}
    for name, accepted in (("rows.jsonl", True), ("drops.jsonl", False)):
        whole = row(10**9, accepted, problem=f"7777777 {text}", id="p7777777").model_dump_json() + "\n"
        lines[name] = whole.replace(f'"index":{10**9}', '"index":7777777')
    with open(path / "rows.jsonl", "w") as kept, open(path / "drops.jsonl", "w") as drops:
        for n in reversed(range(count + dropped)):
            file, line = (kept, lines["rows.jsonl"]) if n < count else (drops, lines["drops.jsonl"])
            file.write(line.replace("7777777", str(n)))
    return path


def peak_of(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def bytes_for_a_further_row(tmp_path, work, few=1000, more=6000, **options):
    sizes = [peak_of(lambda n=n: work(many(tmp_path / str(n), n, **options), n)) for n in (few, more)]
    return (sizes[1] - sizes[0]) / (more - few)


class Problems:
    """As many problems as there are rows, made when they are asked for."""

    def __init__(self, count, text="x" * 2000):
        self.count, self.text = count, text

    def __len__(self):
        return self.count

    def __iter__(self):
        return (problem(n, problem=f"{n} {self.text}", reference=str(2 * 10**9)) for n in range(self.count))


def test_memory_of_a_folder_that_is_opened_again(tmp_path):
    def reopen(path, count):
        with RunFolder(path, {"model": "m"}) as folder:
            folder.check_problems(Problems(count))
            assert len(folder.done) == count and "p0" in folder.done and f"p{count}" not in folder.done

    assert bytes_for_a_further_row(tmp_path, reopen) <= 130


def test_memory_of_drops_that_are_taken_out(tmp_path):
    def retry(path, count):
        text = (path / "drops.jsonl").read_bytes().replace(b'"retryable":false', b'"retryable":true', 10)
        (path / "drops.jsonl").write_bytes(text)
        del text
        tracemalloc.reset_peak()
        with RunFolder(path, {"model": "m"}) as folder:
            folder.begin()
            assert len(folder.done) == count + 2 * count - 10

    def few_and_more(count):
        path = many(tmp_path / str(count), count, dropped=2 * count)
        return peak_of(lambda: retry(path, count))

    assert (few_and_more(3000) - few_and_more(500)) / 7500 <= 130


def test_memory_of_a_folder_that_is_written(tmp_path):
    template = row(0, problem="x" * 2000)

    def append(path, count):
        with RunFolder(path, {"model": "m"}) as folder:
            for n in range(count, 2 * count):
                folder.append(template.model_copy(update={"id": f"p{n}", "index": n}))

    assert bytes_for_a_further_row(tmp_path, append) <= 2 * 130


@pytest.mark.parametrize("read", ["iter_records", "report"])
def test_memory_of_a_run_that_is_read(tmp_path, read):
    def rows(path, count):
        run = open_run(path)
        assert (
            sum(1 for _ in run.iter_records()) == count
            if read == "iter_records"
            else run.report["kept"] == count
        )

    assert bytes_for_a_further_row(tmp_path, rows) <= 130


def test_rows_are_read_in_input_order_one_by_one(tmp_path):
    write(tmp_path / "r", row(3), row(1, False), row(0), row(4, False), row(2))
    run = open_run(tmp_path / "r")
    assert [r.index for r in run.iter_records()] == [0, 1, 2, 3, 4]
    assert [r.index for r in run.records(accepted=False)] == [1, 4] and run.rows.id.tolist() == [
        "p0",
        "p2",
        "p3",
    ]
    reading = iter(run.iter_records())
    assert next(reading).id == "p0"
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:  # a row that comes meanwhile is not among them
        folder.append(row(5))
    assert [r.id for r in reading] == ["p1", "p2", "p3", "p4"]


def test_rows_of_one_index_stay_in_the_order_of_the_files(tmp_path):
    write(
        tmp_path / "r",
        row(1, id="a"),
        row(0, False, id="b", index=1),
        row(2, id="c", index=1),
        row(0, id="d"),
    )
    assert [r.id for r in open_run(tmp_path / "r").iter_records()] == ["d", "a", "c", "b"]


@pytest.mark.parametrize("torn", [b'{"id": "p9", "ind', b"\x00\x00\x00\n"])
def test_a_torn_last_line_loses_only_that_row(tmp_path, torn):
    write(tmp_path / "r", row(2), row(1), row(3, False))
    for name in ("rows.jsonl", "drops.jsonl"):
        with open(tmp_path / "r" / name, "ab") as file:
            file.write(torn)
    assert [r.index for r in open_run(tmp_path / "r").iter_records()] == [1, 2, 3]


def test_a_damaged_line_is_named(tmp_path):
    write(tmp_path / "r", row(1), row(2))
    path = tmp_path / "r" / "rows.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"schema_version"', b"schema_version", 1))
    with pytest.raises(JournalError, match=r"rows\.jsonl, line 1 is not JSON"):
        list(open_run(tmp_path / "r").iter_records())
    path.write_text('{"id": "p1"}\n' + json.dumps([1]) + "\n")
    with pytest.raises(ValueError, match="validation error"):
        list(open_run(tmp_path / "r").iter_records())
    path.unlink()
    (tmp_path / "r" / "drops.jsonl").unlink()
    assert list(open_run(tmp_path / "r").iter_records()) == []


def test_a_run_that_is_gone_on_with_while_it_is_read_gives_the_rows_it_had(tmp_path):
    write(tmp_path / "r", *(row(n, False, "model_server", retryable=n % 2 == 0) for n in range(6)))
    reading = iter(open_run(tmp_path / "r").iter_records())
    next(reading)
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        folder.begin()
        assert sorted(folder.done) == ["p1", "p3", "p5"]
    assert [r.id for r in reading] == ["p1", "p2", "p3", "p4", "p5"]


def test_done_is_what_is_in_the_folder(tmp_path):
    write(tmp_path / "r", row(1), row(2, False))
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        folder.append(row(3, False))
        assert sorted(folder.done) == ["p1", "p2", "p3"] and len(folder.done) == 3
        assert "p3" in folder.done and "p4" not in folder.done and 3 not in folder.done
        folder.check_problems([problem(1), problem(2), problem(3, reference="of this sitting: not compared")])
        with pytest.raises(RunError, match="'p3', which is not among the 2 given"):
            folder.check_problems([problem(1), problem(2)])


def test_the_first_row_that_does_not_fit_is_named(tmp_path):
    write(tmp_path / "r", row(3), row(1), row(2))
    with RunFolder(tmp_path / "r", {"model": "m"}) as folder:
        with pytest.raises(RunError, match="'p3' has changed"):
            folder.check_problems([problem(1), problem(3, reference="x")])
        with pytest.raises(RunError, match="'p3', which is not among the 2"):
            folder.check_problems([problem(1, reference="x"), problem(2)])
        with pytest.raises(RunError, match="'p2' has changed"):
            folder.check_problems([problem(n, metadata={"tests": "x"} if n == 2 else {}) for n in range(9)])


def test_a_line_without_a_text_for_an_id_is_no_row(tmp_path):
    write(tmp_path / "r", row(1))
    with open(tmp_path / "r" / "rows.jsonl", "ab") as file:
        file.write(b'{"id": 5, "accepted": true, "drop_reason": null}\n')
    with pytest.raises(RunError, match="no row"):
        RunFolder(tmp_path / "r", {"model": "m"})


def test_files_are_closed_when_reading_stops_early(tmp_path):
    write(tmp_path / "r", row(1), row(2))
    before = len(os.listdir("/proc/self/fd"))
    reading = open_run(tmp_path / "r").iter_records()
    next(reading)
    del reading
    assert len(os.listdir("/proc/self/fd")) == before


def answer(request):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "\\boxed{4}"}}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return httpx.Response(200, json=body)


def test_memory_of_a_whole_distillation(tmp_path):
    """A further problem of 2,000 characters, everything included: once asked, and once found to be done."""

    def distil(count):
        path = tmp_path / f"{count}.jsonl"
        if not path.exists():
            texts = (f"What is {n} + 4 - {n}? {'x' * 2000}" for n in range(count))
            path.write_text("".join(json.dumps({"problem": text, "answer": "4"}) + "\n" for text in texts))
        client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        client = openai.AsyncOpenAI(api_key="x", base_url="http://mock/v1", http_client=client)
        model = cotkit.ChatModel.from_client(client, "m", max_concurrency=4)

        def work():
            problems = cotkit.load_problems(path, stream=True)
            run = cotkit.distill(problems, model, max_iterations=0, run=tmp_path / f"r{count}", show="none")
            assert run.report["kept"] == count

        return peak_of(work)

    distil(20)  # what is imported
    sizes = [(distil(count), distil(count)) for count in (800, 2000)]
    assert all((more - few) / 1200 <= 300 for few, more in zip(*sizes, strict=True))
