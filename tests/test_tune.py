"""Tuning on a made-up machine: what is pruned, what can win, and how few timings are needed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from effort import at_most
from tunehelp import FLOOR_S, SHAPE, SPACE, FakeBackend, small, truth

import gemmgen
from gemmgen.diagnostics import ArgumentError, LaunchError, SpecError, TuneError
from gemmgen.ir.variant import EXACT
from gemmgen.target import GPUS
from gemmgen.tile import build
from gemmgen.tune.backend import Failed
from gemmgen.tune.estimate import estimate, registers_left
from gemmgen.tune.records import Records
from gemmgen.tune.space import Candidate, key_of, ranked, space
from gemmgen.tune.tuning import tune

MEASURED = Path(__file__).resolve().parent.parent / "generated" / "h200" / "space_1x4096x4096.json"


def run(backend: FakeBackend, spec: Any = None, **options: Any) -> Any:
    spec = gemmgen.parse(SPACE) if spec is None else spec
    return tune(spec, *SHAPE, backend=backend, jobs=1, **{"records": False, **options})


def true_best() -> float:
    order = ranked(space([gemmgen.parse(SPACE)]), SHAPE, GPUS["h200"])
    assert len(order.candidates) >= 300
    return min(truth(c) for c in order.candidates)


def true_seconds(spec: Any) -> float:
    found = [c for c in space([gemmgen.parse(SPACE)]).candidates if c.spec == spec]
    return truth(found[0])


# --- The search -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_within_2_percent_of_the_best_of_over_300_in_60_timings(seed: int) -> None:
    backend = FakeBackend(seed=seed)
    result = run(backend, seed=seed)
    assert true_seconds(result.best) <= 1.02 * true_best()
    assert backend.timings <= 60 and result.timings == backend.timings


def test_the_same_on_a_space_that_was_measured_on_a_gpu() -> None:
    """Real times of 301 kernels, and the model's real mistakes about them."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    seconds = {gemmgen.parse(row["spec"]): row["seconds"] for row in found["rows"]}
    assert len(seconds) >= 300
    backend = FakeBackend(seconds=lambda c: seconds[c.spec])
    result = tune(list(seconds), *found["shape"], backend=backend, jobs=1, records=False)
    assert seconds[result.best] <= 1.02 * min(seconds.values())
    assert backend.timings <= 60


def test_two_tunings_agree_within_noise_and_the_same_one_twice_exactly() -> None:
    first, again, other = (run(FakeBackend(seed=s)) for s in (1, 1, 2))
    assert first.trials == again.trials
    assert true_seconds(first.best) == pytest.approx(true_seconds(other.best), rel=0.01)


def test_a_machine_that_slows_down_does_not_mislead_the_search() -> None:
    backend = FakeBackend(drift=1.03)
    assert true_seconds(run(backend).best) <= 1.02 * true_best()


@pytest.mark.parametrize("search", ["random", "exhaustive", pytest.param("optuna", marks=pytest.mark.full)])
def test_other_searches_keep_to_the_budget_and_win_on_a_small_space(search: str) -> None:
    if search == "optuna":
        pytest.importorskip("optuna")
    backend = FakeBackend()
    result = run(backend, search=search, timings=20)
    assert backend.timings <= 20 and result.trials[0].final
    everything = run(FakeBackend(), small(), search=search, timings=40)
    assert len([t for t in everything.trials if t.status == "ok"]) == 8
    assert everything.best_s == min(t.seconds for t in everything.trials if t.final)


def test_the_winner_is_a_finalist_timed_carefully_beside_the_others() -> None:
    backend = FakeBackend()
    result = run(backend)
    assert len(backend.measured[-1]) == 5 and key_of(result.best) in backend.measured[-1]
    finalists = [t for t in result.trials if t.final]
    assert len(finalists) == 5 and result.trials[:5] == tuple(finalists)
    assert all(t.samples + t.discarded == 15 for t in finalists)


def test_a_tiny_budget_still_gives_an_answer() -> None:
    for timings in (1, 2, 3):
        backend = FakeBackend()
        assert run(backend, timings=timings).best is not None and backend.timings <= timings


# --- What can never win -----------------------------------------------------------------------------------------------


def fastest_fails(kind: str) -> tuple[FakeBackend, Candidate]:
    """A machine on which the truly fastest candidate of the small space fails."""
    best = min(space([small()]).candidates, key=truth)
    why = Failed(kind, "as the test says")  # type: ignore[arg-type]
    return FakeBackend(fails=lambda c: why if c.key == best.key else None), best


@pytest.mark.parametrize("kind", ["wrong", "launch", "hang", "died"])
def test_a_failed_candidate_is_listed_and_cannot_win(kind: str) -> None:
    backend, best = fastest_fails(kind)
    result = run(backend, small())
    failed = [t for t in result.trials if t.status == "failed"]
    assert [t.spec for t in failed] == [best.spec] and failed[0].reason == f"{kind}: as the test says"
    assert result.best != best.spec and failed[0].seconds is None


def test_one_that_fails_only_in_the_final_comparison_cannot_win() -> None:
    best = min(space([small()]).candidates, key=truth)
    backend = FakeBackend()

    def fails(c: Candidate) -> Failed | None:
        return Failed("hang", "late") if c.key == best.key and len(backend.measured) > 1 else None

    backend.fails = fails
    result = run(backend, small())
    assert result.best != best.spec
    assert [t.reason for t in result.trials if t.spec == best.spec] == ["hang: late"]


def test_faster_than_physics_is_a_failure() -> None:
    best = min(space([small()]).candidates, key=truth)
    backend = FakeBackend(seconds=lambda c: FLOOR_S * 0.9 if c.key == best.key else truth(c))
    result = run(backend, small())
    (failed,) = [t for t in result.trials if t.status == "failed"]
    assert failed.spec == best.spec and "peak: 28.9 us is less than the 32.1 us that the GPU needs" in failed.reason
    at_the_peak = FakeBackend(seconds=lambda c: FLOOR_S * 1.01 if c.key == best.key else truth(c))
    assert run(at_the_peak, small()).best == best.spec


def test_spills_are_never_timed() -> None:
    best = min(space([small()]).candidates, key=truth)
    backend = FakeBackend(spills=lambda c: 8 if c.key == best.key else 0)
    result = run(backend, small())
    assert best.key not in {key for batch in backend.measured for key in batch}
    assert [t.reason for t in result.trials if t.status == "failed"] == [
        "spills: 8 bytes per thread spill to local memory"
    ]


def test_no_survivor_is_a_typed_error_that_says_why() -> None:
    with pytest.raises(TuneError, match=r"no candidate for 1024x1024x1024 survives: all 8 .*wrong: C\[0, 0\]"):
        run(FakeBackend(fails=lambda c: Failed("wrong", "C[0, 0] is 1.0, want 2.0")), small())
    assert issubclass(TuneError, gemmgen.GemmgenError)


def test_contended_rounds_are_left_out_and_noise_is_shown() -> None:
    calm = run(FakeBackend(noise=0.001), small())
    busy = run(FakeBackend(noise=0.001, busy={3: 1.5, 4: 2.0}), small())
    assert busy.best == calm.best
    assert busy.best_s == pytest.approx(calm.best_s, rel=0.01) and busy.trials[0].discarded == 2
    assert run(FakeBackend(noise=0.1), small()).trials[0].spread > 5 * calm.trials[0].spread


# --- What is left out before compiling ------------------------------------------------------------------------------


def test_illegal_and_hopeless_candidates_are_counted_with_their_reasons() -> None:
    backend = FakeBackend()
    spec = gemmgen.parse(
        SPACE.split("tune")[0] + "tune tile block in {128x128x16, 100x128x16, 128x128x512}\n"
        "tune tile warp in {64x64, 128x128}\ntune stages in {1, 8}\n"
    )
    result = run(backend, spec)
    assert result.combinations == 12
    said = {(by, why.split(":")[0].split(";")[0]): count for by, why, count in result.pruning}
    assert sum(said.values()) == len(result.pruned) == 12 - len(result.trials)
    assert any(by == "checks" and "is not a multiple of" in why for by, why in said)
    assert any(by == "model" for by, _ in said)
    assert set(backend.compiled) <= {key_of(t.spec) for t in result.trials}


def test_a_space_with_nothing_legal_is_an_error() -> None:
    spec = gemmgen.parse(SPACE.split("tune")[0]).replace(tune={"block": [(100, 128, 16), (36, 36, 4)]})
    with pytest.raises(TuneError, match=r"no candidate for 1024x1024x1024 is left of 2 to try: .* by the checks"):
        run(FakeBackend(), spec)


def test_kernels_that_are_the_same_are_tried_once() -> None:
    one = gemmgen.parse("kernel one\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem\n")
    backend = FakeBackend()
    result = run(backend, [one, one.replace(name="other"), gemmgen.parse("# why\n" + one.to_text())])
    assert len(result.trials) == 1


def test_choices_from_python_come_before_those_of_the_text() -> None:
    result = run(FakeBackend(), small(), choices={"stages": (2,), "pad_a": (0, 4, 8)})
    assert {t.spec.stages for t in result.trials} == {2} and {t.spec.pad_a for t in result.trials} == {0, 4, 8}
    with pytest.raises(SpecError, match="'stagez' is not a setting"):
        run(FakeBackend(), small(), choices={"stagez": (1,)})


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (16, 4096, 4096), (127, 129, 131), (256, 256, 65536)])
def test_the_default_space_suits_any_shape(shape: tuple[int, int, int]) -> None:
    result = tune(None, *shape, device="sim")
    assert len(result.trials) > 100 and not result.measured and result.timings == 0
    assert {t.status for t in result.trials} == {"modelled"} and result.gpu == GPUS["h200"].title
    assert len({key_of(t.spec) for t in result.trials}) == len(result.trials)
    for trial in result.trials[:3]:
        assert gemmgen.parse(trial.spec.to_text()) == trial.spec and gemmgen.emit(trial.spec)


def test_older_gpus_get_what_they_can_run() -> None:
    on_t4 = tune(None, 512, 512, 512, device="sim", gpu="t4")
    assert not any(t.spec.has("tma") or t.spec.has("cpasync") for t in on_t4.trials)
    assert any("tma needs sm_90" in why for _, why, _ in on_t4.pruning)


# --- Arguments, records ---------------------------------------------------------------------------------------------


def test_without_a_gpu_only_the_model_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime import device as devices

    monkeypatch.setattr(devices, "current", lambda: None)
    with pytest.raises(LaunchError, match='device="sim"'):
        tune(small(), *SHAPE, records=False)
    assert not tune(small(), *SHAPE, device="sim").measured


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (({"m": 0}), "m is 0"), (({"k": True}), "k is True"), (({"search": "best"}), "search is 'best'"),
        (({"timings": 0}), "timings is 0"), (({"device": "tpu"}), "device is 'tpu'"), (({"spec": []}), "at least one"),
        (({"spec": ["warptile"]}), "gemmgen.load"),
    ],
)  # fmt: skip
def test_arguments_are_checked(arguments: dict[str, Any], said: str) -> None:
    given = {"m": 64, "n": 64, "k": 64, "records": False, "backend": FakeBackend(), "spec": small()} | arguments
    with pytest.raises(ArgumentError, match=said):
        tune(given.pop("spec"), **given)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    path, first, second = tmp_path / "r.sqlite", FakeBackend(seed=1), FakeBackend(seed=2)
    once = run(first, records=path)
    again = run(second, records=path)
    assert second.timings == 0 and again.best == once.best and again.timings == 0
    assert all(t.recorded for t in again.trials) and not any(t.recorded for t in once.trials)
    other = FakeBackend(machine=first.machine.__class__("another GPU", "1.0", "13.0"))
    assert run(other, records=path).timings > 0
    elsewhere = FakeBackend()
    assert tune(gemmgen.parse(SPACE), 1024, 1024, 512, backend=elsewhere, records=path).timings == elsewhere.timings > 0


def test_a_search_that_is_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    path, broken = tmp_path / "r.sqlite", FakeBackend(seed=1)
    measure = broken.measure

    def until_the_third(*arguments: Any, **options: Any) -> Any:
        if len(broken.measured) == 3:
            raise KeyboardInterrupt
        return measure(*arguments, **options)

    broken.measure = until_the_third  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(broken, records=path)
    done = {key for batch in broken.measured for key in batch}
    second = FakeBackend(seed=1)
    result = run(second, records=path)
    fresh = {key for batch in second.measured[:-1] for key in batch[1:]}
    assert fresh and fresh.isdisjoint(done), "only the fastest so far is timed again, as what others are compared with"
    assert true_seconds(result.best) <= 1.02 * true_best()


def test_failures_of_a_kernel_are_kept_and_those_of_a_moment_are_not(tmp_path: Path) -> None:
    for kind, times in (("hang", 1), ("launch", 2)):
        path = tmp_path / f"{kind}.sqlite"
        backend, best = fastest_fails(kind)
        for _ in range(2):
            result = run(backend, small(), records=path)
            assert [t.spec for t in result.trials if t.status == "failed"] == [best.spec]
        assert sum(best.key in batch for batch in backend.measured) == times
        with Records(path) as book:
            assert [r.status for r in book.find() if r.status != "ok"] == (["hang"] if kind == "hang" else [])


def test_any_order_of_lines_gives_the_same_space() -> None:
    lines = SPACE.splitlines()
    head, choices = lines[:5], lines[5:]
    random.Random(3).shuffle(choices)
    one, other = (space([gemmgen.parse("\n".join(head + tail))]) for tail in (lines[5:], choices))
    assert {c.key for c in one.candidates} == {c.key for c in other.candidates}


def test_min_blocks_limits_registers_and_is_hopeless_only_where_too_few_are_left() -> None:
    base = gemmgen.parse(SPACE.split("tune")[0])  # 128 threads, 128 sums and 24 fragments each
    said = {}
    for least in (0, 2, 3, 4, 16):
        found = estimate(base.replace(min_blocks=least), (4096, 4096, 4096), GPUS["h200"])
        said[least] = found.hopeless
    assert not said[0] and not said[2] and not said[3]
    assert said[4] == "spills: a thread's own values take 152 registers of 128"
    assert "registers of 32" in said[16]
    light = base.replace(thread=(4, 4), warp=(32, 32), block=(64, 64, 16))
    left = [registers_left(build(light.replace(min_blocks=least), EXACT), GPUS["h200"]) for least in (0, 4, 16)]
    assert left == [255, 128, 32]


def test_the_model_takes_no_longer_for_more_blocks() -> None:
    """Each round of blocks was gone through by itself: at this shape minutes for what is asked of every candidate."""
    gpu, spec = GPUS["h200"], gemmgen.parse("kernel thin\ntile block 1x4x4\ntile thread 1x4\nuse smem\n")
    with at_most(calls=100_000):
        one, two = (estimate(spec, (rows, 1 << 20, 64), gpu).seconds for rows in (1 << 29, 1 << 30))
    assert two == pytest.approx(2 * one, rel=1e-3)
