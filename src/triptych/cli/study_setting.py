"""What ``triptych study`` verbs share: their options, what these make of a study, and running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from triptych.cli.progress import stages, warn
from triptych.cli.settings import parse_assignment
from triptych.errors import UsageError

if TYPE_CHECKING:
    from triptych.studies.cells import Cell, Study
    from triptych.studies.declared_tables import DataKind
    from triptych.studies.layout import Layout, Report
    from triptych.studies.reproduce import Choice

OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Folder of the study; a finished cell is kept.", show_default=False),
]
DataOptions = Annotated[
    list[Path] | None,
    typer.Option(
        "--data",
        help="A data set; may be repeated: each gets cells and tables of its own.",
        show_default="a benchmark that is drawn into OUT/data",
    ),
]
NoiseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--noise",
        metavar="KIND:RATES",
        help="Noise such as mix:0,0.2 or hard:0.5, in place of the paper's; oracle:mix:0.5 leaves the wrong triplets"
        " out. May be repeated.",
        show_default="as in the papers",
    ),
]
SeedOption = Annotated[
    list[int] | None,
    typer.Option("--seed", help="Seeds of the trainings; may be repeated.", show_default="0"),
]
BackboneOption = Annotated[
    list[str] | None,
    typer.Option("--backbone", help="A backbone; may be repeated.", show_default="that of --init, else lite"),
]
InitOption = Annotated[
    Path | None,
    typer.Option(
        "--init",
        help="Start each cell from this model, such as `triptych align` writes.",
        show_default="on the drawn benchmark: aligned on its captions, in OUT/aligned",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="A setting of `training` or `backbone`, or of a method by its name: intent.counterfactual_bank=4. May"
        " be repeated.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", min=1, help="Cells at once; they share the cores, and take the GPUs in turn.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="List the cells and the time they will take, and run nothing.")
]
TrainOption = Annotated[int, typer.Option("--train", min=3, help="Training triplets of the drawn benchmark.")]
ValOption = Annotated[int, typer.Option("--val", min=3, help="Queries of the drawn benchmark.")]
AlignOption = Annotated[
    int,
    typer.Option(
        "--align-epochs", min=0, help="Epochs of the alignment on the drawn benchmark's captions; 0 = none."
    ),
]
DRAWN = "drawn"


@dataclass(frozen=True)
class Setting:
    """The options of a verb, checked.

    Attributes:
        out: the study's folder.
        data: name to data set; that which is to be drawn need not be there yet.
        choice: what cells are made for.
        init: what they start from; None where it is aligned first, or nothing.
        training: settings of all cells.
        backbone: settings of all cells.
        switches: method to switches.
        drawn: (training triplets, queries, epochs of alignment) where the data is drawn.
    """

    out: Path
    data: Mapping[str, Path]
    choice: Choice
    init: Path | None
    training: Mapping[str, Any]
    backbone: Mapping[str, Any]
    switches: Mapping[str, Mapping[str, Any]]
    drawn: tuple[int, int, int] | None

    @property
    def aligns(self) -> bool:
        """Whether a start is aligned first."""
        return (
            self.drawn is not None
            and self.drawn[2] > 0
            and self.init is None
            and len(self.choice.backbones) == 1
        )

    def study(self, cells: Sequence[Cell]) -> Study:
        """Make the study of cells, each once."""
        from triptych.studies.cells import Study

        init = self.out / "aligned" if self.aligns else self.init
        unique = tuple(dict.fromkeys(cells))
        return Study(self.data, self.out, unique, init, self.training, self.switches, self.backbone)

    def prepare(self) -> None:
        """Draw the data and align the start, where these are wanted and not there."""
        if self.drawn is None:
            return
        from triptych.studies.drawn_start import aligned_start, drawn_benchmark
        from triptych.triplets import read_benchmark

        train, val, epochs = self.drawn
        with stages() as bars:
            path = drawn_benchmark(self.data[DRAWN], train=train, val=val, seed=0, stages=bars)
            if self.aligns:
                name = self.choice.backbones[0] or "lite"
                aligned_start(
                    self.out / "aligned",
                    read_benchmark(path).images,
                    path / "captions.csv",
                    backbone={"name": name, **self.backbone},
                    epochs=epochs,
                    seed=0,
                    stages=bars,
                )


def read_setting(
    out: Path,
    data: Sequence[Path] | None,
    *,
    methods: Sequence[str] | None = None,
    noise: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    backbones: Sequence[str] | None = None,
    init: Path | None = None,
    assignments: Sequence[str] | None = None,
    train: int,
    val: int,
    align_epochs: int,
) -> Setting:
    """Check the options and put them together.

    Raises:
        UsageError: one is wrong, or two data sets have one name.
        DataError: a data set cannot be read.
    """
    from triptych.methods import registry
    from triptych.studies.cells import parse_noise
    from triptych.studies.reproduce import Choice
    from triptych.triplets import read_benchmark

    for name in methods or ():
        registry.get(name)
    named: dict[str, Path] = {}
    kinds: dict[str, DataKind] = {}
    for path in data or ():
        benchmark = read_benchmark(path)
        warn(*benchmark.warnings)
        name = path.resolve().name
        if name in named:
            raise UsageError(f"--data: two data sets are called {name}; rename a folder")
        named[name] = path
        kinds[name] = "cirr" if benchmark.protocol == "cirr" else "fashioniq"
    if not data:
        named, kinds = {DRAWN: out / "data"}, {DRAWN: "fashioniq"}
    training, backbone, switches = read_assignments(assignments or (), registry.names())
    for name, values in switches.items():
        registry.configure(name, values)
    choice = Choice(
        kinds,
        tuple(dict.fromkeys(seeds or (0,))),
        tuple(methods or ()),
        tuple(level for text in noise or () for level in parse_noise(text)),
        tuple(dict.fromkeys(backbones or ("",))),
    )
    drawn = None if data else (train, val, align_epochs)
    return Setting(out, named, choice, init, training, backbone, switches, drawn)


def read_assignments(
    assignments: Sequence[str], methods: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]:
    """Sort ``--set`` into settings of training, of the backbone, and of methods by name.

    Raises:
        UsageError: one is of another section.
    """
    training: dict[str, Any] = {}
    backbone: dict[str, Any] = {}
    switches: dict[str, dict[str, Any]] = {}
    for assignment in assignments:
        name, value = parse_assignment(assignment)
        section, _, key = name.partition(".")
        if section == "training" and key:
            training[key] = value
        elif section == "backbone" and key:
            backbone[key] = value
        elif section in methods and key:
            switches.setdefault(section, {})[key] = value
        else:
            raise UsageError(
                f"--set {assignment}: write training.KEY=VALUE, backbone.KEY=VALUE or METHOD.SWITCH=VALUE"
                f" ({', '.join(methods)})"
            )
    return training, backbone, switches


def run_layouts(
    setting: Setting,
    layouts: Sequence[Layout],
    *,
    jobs: int,
    dry_run: bool,
    write: Callable[[Study, Sequence[Layout]], Sequence[Path]] | None = None,
) -> None:
    """Run the cells of layouts and write their tables, also after a cell failed; or say what would be run."""
    from triptych.studies.check_cells import check_cells
    from triptych.studies.predict import cells_in_words, predict
    from triptych.studies.run_cells import run_cells

    console = Console(highlight=False)
    cells = [cell for layout in layouts for line in layout.lines for cell in line.cells]
    study = setting.study(cells)
    check_cells(study)
    if dry_run:
        for cell in study.cells:
            console.print(f"{cell.name}  {'done' if study.is_done(cell) else 'to run'}", soft_wrap=True)
        console.print(cells_in_words(study.cells, study))
        with Console(stderr=True).status("counting operations"):
            prediction = predict(study, _triplets(setting))
        console.print(prediction.sentence, soft_wrap=True)
        return
    study.claim()
    setting.prepare()
    console.print(f"{cells_in_words(study.cells, study)}; {jobs} at once", soft_wrap=True)
    count = sum(map(study.is_done, study.cells))

    def told(cell: Cell, seconds: float) -> None:
        nonlocal count
        count += 1
        console.print(f"{count}/{len(study.cells)}  {cell.name}  {seconds:.0f} s", soft_wrap=True)

    write = write or write_layouts
    try:
        run_cells(study, jobs=jobs, told=told)
    finally:
        for path in write(study, layouts):
            console.print(f"table: {path}", soft_wrap=True)


def write_layouts(
    study: Study, layouts: Sequence[Layout], before: Mapping[str, Sequence[Report]] | None = None
) -> list[Path]:
    """Write the tables of layouts; those of one name into one file.

    Args:
        study: whose cells they show.
        layouts: what is shown.
        before: name to what stands before the layout's own tables.
    """
    from triptych.studies.layout import lay_out
    from triptych.studies.write_reports import write_reports

    reports: dict[str, list[Report]] = {name: list(own) for name, own in (before or {}).items()}
    for layout in layouts:
        reports.setdefault(layout.name, []).append(lay_out(study, layout))
    return [write_reports(study.folder, name, own) for name, own in reports.items()]


def _triplets(setting: Setting) -> dict[str, int]:
    from triptych.triplets import read_benchmark

    found = {}
    for name, path in setting.data.items():
        drawn = setting.drawn is not None and not path.exists()
        found[name] = setting.drawn[0] if drawn and setting.drawn else len(read_benchmark(path).train)
    return found
