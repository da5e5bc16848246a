"""The playground without a browser: answers, child processes and their limits, completion, links, and the door."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.play import answers, share
from gemmgen.play.answers import LARGEST, answer
from gemmgen.play.complete import completed, completions, edited
from gemmgen.play.door import allowed, hosts
from gemmgen.play.pool import Pool
from gemmgen.play.worker import reply

SMEM = "kernel mine\ntile block 32x32x16\nuse coalescing, smem\n"


def ask(kind: str, text: str = SMEM, **more: object) -> dict[str, object]:
    return answer({"kind": kind, "text": text, **more})


def test_texts_have_the_cuda_the_tile_program_and_the_counts() -> None:
    found = ask("texts", size=[512, 512, 512], gpu="a6000")
    assert str(found["cuda"]).count('class="line"') == len(gemmgen.emit(gemmgen.parse(SMEM)).splitlines())
    assert "block tile of C" in str(found["tile"]) and "512x512x512" in str(found["counts"])
    assert "RTX A6000" in str(found["counts"]) and "limited by: " in str(found["counts"])
    assert "<ins" not in str(found["cuda"])
    changed = ask("texts", pinned=SMEM.replace("32x32x16", "32x32x8"))
    assert "<ins" in str(changed["cuda"]) and "<del" in str(changed["cuda"])


def test_mistakes_have_their_places() -> None:
    found = ask("texts", "kernel x\ntile blok 3x3\nuse smemm\n")["errors"]
    assert isinstance(found, list)
    assert [(e["line"], e["column"], e["length"]) for e in found][:2] == [(2, 6, 4), (3, 5, 5)]
    assert found[0]["hint"] == "did you mean 'block'?"


@pytest.mark.parametrize("kind", ["pictures", "difference", "simulated", "advised"])
def test_every_kind_is_answered(kind: str) -> None:
    found = ask(kind, pinned=SMEM.replace("16", "8"), size=[256, 256, 256])
    assert "errors" not in found
    wanted = {"pictures": "pictures", "difference": "difference", "simulated": "right", "advised": "advice"}[kind]
    assert found[wanted]


def test_a_barrier_taken_away_is_a_race_on_its_line() -> None:
    whole = ask("simulated")
    assert whole["right"] and not whole["faults"] and len(whole["barriers"]) == 2  # type: ignore[arg-type]
    cut = ask("simulated", without=0)
    assert "race: thread " in cut["faults"][0] and cut["lines"] == [2]  # type: ignore[index]


def test_what_cannot_be_answered_says_why() -> None:
    assert "a question has a text and a kind" in str(answer({"kind": "nothing", "text": ""}))
    assert "a question has a text and a kind" in str(answer({"kind": "texts", "text": 3}))
    assert "the page takes 20,000" in str(ask("texts", "x" * (LARGEST + 1)))
    assert "no spec is pinned" in str(ask("difference"))
    assert "does not run on" in str(ask("texts", gemmgen.load("tma").to_text(), gpu="a6000"))


def test_no_answer_names_a_file_or_reads_one(tmp_path: Path) -> None:
    (tmp_path / "secret.gemm").write_text("kernel secret\ntile block 16x16\n")
    for text in (str(tmp_path / "secret.gemm"), f"kernel x\ntile block 16x16\n# {tmp_path}\n", "../../etc/passwd"):
        assert "secret.gemm" not in str(ask("texts", text).get("cuda", "")) and "kernel secret" not in str(
            ask("texts", text)
        )
    assert list(tmp_path.iterdir()) == [tmp_path / "secret.gemm"]


def test_html_is_escaped() -> None:
    found = ask("texts", "# <script>alert(1)</script>\n" + SMEM)
    assert "<script>" not in str(found["cuda"]) and "&lt;script&gt;" in str(found["cuda"])


def test_any_line_is_replied_to() -> None:
    for line in ("", "{", "[]", "3", '"x"', json.dumps({"kind": "texts"}), json.dumps({"text": "\x00\ud800"})):
        assert json.loads(reply(line))["errors"]


# --- Child processes -------------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(quick=1, slow=1, seconds={"texts": 60.0, "advised": 0.05, "simulated": 60.0}) as pool:
        yield pool


def test_a_child_answers_again_and_again(pool: Pool) -> None:
    one = pool.ask({"kind": "texts", "text": SMEM})
    assert one == pool.ask({"kind": "texts", "text": SMEM}) and "cuda" in one
    assert len(pool.running) == 1


def test_one_that_takes_too_long_is_ended_and_another_serves_the_next(pool: Pool) -> None:
    late = pool.ask({"kind": "advised", "text": SMEM})
    assert "no answer within 0.05 s" in late["errors"][0]["message"]
    assert pool.running == ()
    assert pool.ask({"kind": "simulated", "text": SMEM, "size": [64, 64, 64]})["right"]


def test_one_that_dies_is_replaced(pool: Pool) -> None:
    assert "cuda" in pool.ask({"kind": "texts", "text": SMEM})
    [pid] = pool.running
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its parent has not been told
    assert "cuda" in pool.ask({"kind": "texts", "text": SMEM})
    assert pool.running != (pid,)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot halt a process")
def test_a_busy_machine_is_not_a_costly_spec() -> None:
    """Halted for longer than the limit, a child has used no processor time, and answers."""
    with Pool(quick=1, slow=0, seconds={"texts": 1.0}) as pool, ThreadPoolExecutor(1) as sender:
        pool.warm()
        [pid] = pool.running
        os.kill(pid, signal.SIGSTOP)
        asked = sender.submit(pool.ask, {"kind": "texts", "text": SMEM})
        with pytest.raises(TimeoutError):
            asked.result(timeout=1.5)
        os.kill(pid, signal.SIGCONT)
        assert "cuda" in asked.result()


def test_processes_end_with_the_pool() -> None:
    with Pool(quick=1, slow=0) as pool:
        pool.warm()
        pids = pool.running
    assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.full
def test_hostile_specs_cost_their_sender_only() -> None:
    """Each is answered or refused, and an honest visitor beside them is served."""
    hostile = [
        "kernel x\n" + "tile block 16x16\n" * 2000,
        "use " + "smem, " * 5000,
        "kernel x\ntile block 999999999999x999999999x99999999\n",
        "kernel x\ntile block 512x512x8\ntile thread 16x32\nuse coalescing, smem\n",
        "\x00\ufeff\u202e" * 3000,
        "kernel x\ntile block 1024x1024x1\ntile thread 32x32\nuse smem\nstages 8\n",
        "#" * 19_999,
        "kernel x\ntile block 32x32x16\nuse coalescing, smem\nunroll " + "9" * 4000,
    ]
    served: list[str] = []
    with Pool(quick=2, slow=1) as pool, ThreadPoolExecutor(4) as senders:
        pool.warm()
        stop = threading.Event()

        def honest() -> None:
            while not stop.is_set():
                served.append(pool.ask({"kind": "texts", "text": SMEM})["cuda"])

        visitor = senders.submit(honest)
        kinds = ("texts", "pictures", "difference")
        asked = [{"kind": kinds[i % 3], "text": hostile[i % len(hostile)], "pinned": SMEM} for i in range(1000)]
        assert all(found for found in senders.map(pool.ask, asked))
        stop.set()
        visitor.result()
    assert served and set(served) == {answer({"kind": "texts", "text": SMEM})["cuda"]}


# --- Completion, links, the door -------------------------------------------------------------------------------------


def test_completion_knows_settings_toggles_and_values() -> None:
    assert completions("kernel x\nst", 11) == ["stages"]
    assert completions("tile ", 5) == ["block", "warp", "thread"]
    assert "float4" in completions("use smem, fl", 12) and "smem" not in completions("use smem, s", 11)
    assert completions("stages ", 7)[:2] == ["1", "2"]
    assert completions("# use ", 6) == [] and completions("kernel ", 7) == []
    assert completed("use smem, fl\nstages 2", 12, "float4") == "use smem, float4\nstages 2"


@pytest.mark.parametrize(
    ("before", "after", "at"),
    [("ab", "abc", 3), ("ab", "xab", 1), ("ab", "aXb", 2), ("abc", "ac", 1), ("", "kernel", 6)],
)
def test_the_place_of_an_edit(before: str, after: str, at: int) -> None:
    assert edited(before, after) == at


def test_a_link_holds_the_spec() -> None:
    for text in (SMEM, "", "Ünïcode 🙂\n" * 50):
        assert share.unpacked(share.packed(text)) == text
    assert all(c.isalnum() or c in "-_" for c in share.packed(SMEM))
    bomb = share.packed("x" * (5 * LARGEST))
    assert len(bomb) < 1000 and share.unpacked(bomb) is None
    assert share.unpacked("not a spec!") is None and share.unpacked("AAAA") is None


def test_only_the_pages_own_address_is_let_in() -> None:
    known = hosts("127.0.0.1", 8642)
    assert known == {"127.0.0.1:8642", "localhost:8642"}
    host, good, bad = b"Host", b"127.0.0.1:8642", b"evil.example:8642"
    assert allowed([(host, good)], known) and allowed([(host, good), (b"origin", b"http://localhost:8642")], known)
    assert not allowed([(host, bad)], known) and not allowed([], known)
    assert not allowed([(host, good), (host, bad)], known)
    assert not allowed([(host, good), (b"Origin", b"http://evil.example")], known)
    assert not allowed([(host, good), (b"Origin", b"null")], known)
    everywhere = hosts("0.0.0.0", 8642)
    for host, said, there in (
        ("10.1.2.3:8642", "http://10.1.2.3:8642", True), ("[fe80::1]:8642", "", True), ("localhost:8642", "", True),
        ("evil.example:8642", "", False), ("10.1.2.3:80", "", False), ("10.1.2.3:8642", "http://evil.example", False),
    ):  # fmt: skip
        headers = [(b"host", host.encode()), *([(b"origin", said.encode())] if said else [])]
        assert allowed(headers, everywhere) is there, (host, said)
    assert hosts("::1", 80) >= {"[::1]:80"} and hosts("192.168.1.5", 80) == {"192.168.1.5:80"}


def test_the_command_refuses_what_it_cannot_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["play", "no_such_rung"]) == 2
    assert "no such rung" in capsys.readouterr().err
    monkeypatch.setattr("gemmgen.play.find_spec", lambda name: None)
    assert run(["play", "--no-browser"]) == 1
    assert "pip install 'gemmgen[play]'" in capsys.readouterr().err
    monkeypatch.undo()
    import socket

    monkeypatch.setattr("gemmgen.play.require", lambda: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["play", "--no-browser", "--port", str(port)]) == 2
    assert f"127.0.0.1:{port} cannot be used" in capsys.readouterr().err


def test_limits_are_set_in_the_child() -> None:
    assert set(answers.KINDS) == {"texts", "advised", "pictures", "compiled", "difference", "simulated"}
