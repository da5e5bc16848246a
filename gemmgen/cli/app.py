"""The commands, put together. Each is a small module; what it needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmgen.cli.ablate import ablate
from gemmgen.cli.banks import banks
from gemmgen.cli.bench import bench
from gemmgen.cli.check import check
from gemmgen.cli.compile import compile_specs
from gemmgen.cli.diff import diff
from gemmgen.cli.execute import run
from gemmgen.cli.explain import explain
from gemmgen.cli.export import export
from gemmgen.cli.gpus import gpus
from gemmgen.cli.ladder import ladder
from gemmgen.cli.lesson import app as lesson_app
from gemmgen.cli.listing import settings
from gemmgen.cli.new import new
from gemmgen.cli.pages import report
from gemmgen.cli.picture import picture
from gemmgen.cli.play import play
from gemmgen.cli.profile import profile
from gemmgen.cli.tune import tune
from gemmgen.cli.warm import warm

HELP = """A compiler for tiled matrix multiplication on NVIDIA GPUs.

A spec of about ten lines says how the work is tiled and which optimisations are on. gemmgen turns it into CUDA that
a person can read, compiles and runs it (on a GPU, or in a simulator where there is none), and checks the result.

Start with:  gemmgen run warptile
"""

WITH_SET = (
    "compile", "check", "run", "bench", "tune", "explain", "diff", "ablate", "profile", "banks", "report", "picture",
    "play", "export", "new",
)  # fmt: skip
"""The commands that take --set."""

EPILOG = (
    f"--set NAME=VALUE changes a setting of the spec in {', '.join(WITH_SET[:-1])} and {WITH_SET[-1]}; `gemmgen \
settings` lists the settings. "
    + "Exit status: 0 success; 1 a wrong result, a failed run or something missing; 2 a mistake in a spec or on the \
command line; 130 interrupted."
)

app = typer.Typer(
    name="gemmgen",
    help=HELP,
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def show_version(wanted: bool) -> None:
    if wanted:
        from gemmgen.version import __version__

        typer.echo(f"gemmgen {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("compile")(compile_specs)
app.command("check")(check)
app.command("run")(run)
app.command("bench")(bench)
app.command("ladder")(ladder)
app.command("tune")(tune)
app.command("warm")(warm)
app.command("explain")(explain)
app.command("diff")(diff)
app.command("ablate")(ablate)
app.command("profile")(profile)
app.command("banks")(banks)
app.command("report")(report)
app.command("picture")(picture)
app.command("play")(play)
app.add_typer(lesson_app, name="lesson")
app.command("gpus")(gpus)
app.command("export")(export)
app.command("settings")(settings)
app.command("new")(new)
