"""The command line: a group of commands, those with parts of their own in their own packages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click  # parses the command line, and proposes the option that was meant
from click.core import ParameterSource

from dncfl import __version__
from dncfl.common.config import MAX_CLIENTS, Config, load_config
from dncfl.common.errors import StorageError
from dncfl.common.faults import parse_faults
from dncfl.common.log import log_to_stderr
from dncfl.common.running import gone_at_signal, run_until_signal
from dncfl.common.sockets import parse_address
from dncfl.common.tasks.own import is_own
from dncfl.launch.first_time import tell_if_it_compiles
from dncfl.launch.keys import keys_group, node_security, security_options, server_security
from dncfl.launch.local import LocalNodes
from dncfl.launch.options import config_argument, config_options, setting_options
from dncfl.launch.outage.command import outage
from dncfl.launch.reproduce.command import reproduce
from dncfl.launch.sweep.command import plot, sweep
from dncfl.launch.theory.command import theory
from dncfl.node.settings import NodeSettings
from dncfl.server.files import CONFIG

MAY_CHANGE = (
    "rounds", "min_nodes", "patience", "join_patience", "training_patience", "slot_patience", "data_root", "json", "faults"
)  # fmt: skip
"""Settings that a resumed run may have others of: they do not decide what its rounds compute."""


class NodeNumber(click.IntRange):
    """A node's number; by its name an error says what was meant."""

    name = "node number"


log_level_option, log_level_of_node_option = (
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="how much to log on stderr",
    )
    for default in ("warning", "info")
)
resume_option = click.option(
    "--resume",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="go on with the run in this folder, after its last round that is done",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="dncfl")
def cli() -> None:
    """Federated learning over bad wireless links, for real: nodes, a parameter server and a diversity network code."""


cli.add_command(keys_group)
cli.add_command(sweep)
cli.add_command(reproduce)
cli.add_command(plot)
cli.add_command(outage)
cli.add_command(theory)


@cli.command()
@config_argument
@config_options
@resume_option
@log_level_option
def run(config_file: Path | None, resume: Path | None, log_level: str, **options: object) -> None:
    """Run the PS and all nodes on this machine. CONFIG is a TOML file; options override it."""
    config = _prepare(_config_of(config_file, resume, options), options, log_level)
    nodes = LocalNodes(config, log_level)  # first, so that its fork server imports torch while this process does
    with gone_at_signal():
        from dncfl.launch.serving import serve_locally

    _report(config, serve_locally(config, nodes, resume))


@cli.command()
@config_argument
@config_options
@click.option("--bind", default="127.0.0.1:5555", show_default=True, help="HOST:PORT that nodes join at")
@click.option("--downlink-port", type=click.IntRange(1, 65535), help="port of the downlink; a free one unless given")
@security_options
@resume_option
@log_level_option
def server(
    config_file: Path | None,
    bind: str,
    downlink_port: int | None,
    keys: Path | None,
    insecure: bool,
    resume: Path | None,
    log_level: str,
    **options: object,
) -> None:
    """Run the PS alone; its nodes are started by hand with `dncfl node`."""
    config = _prepare(_config_of(config_file, resume, options), options, log_level, trains=False)
    host, port = parse_address(bind)
    security = server_security(config.clients, keys, insecure=insecure)
    with gone_at_signal():
        from dncfl.launch.serving import serve_by_hand

    _report(config, serve_by_hand(config, host, port, downlink_port, security, resume))


@cli.command()
@click.argument("number", type=NodeNumber(0, MAX_CLIENTS - 1))
@click.option("--server", "address", default="127.0.0.1:5555", show_default=True, help="HOST:PORT of the PS")
@click.option("--host", help="address of this machine that the PS and the other nodes reach")
@click.option("--port", type=click.IntRange(1, 65535), help="port to be heard at; a free one unless given")
@click.option("--data-root", help="folder with the data set on this machine")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="where this node trains")
@click.option("--model", metavar="NAME", help="allow the run's own model, package.module:function, to be imported here")
@click.option("--dataset", metavar="NAME", help="allow the run's own data set, package.module:function, to be imported here")
@click.option("--trace", metavar="FILE", help="recorded trace on this machine, for the trace channel")
@click.option(
    "--patience",
    type=click.FloatRange(0.1),
    default=600.0,
    show_default=True,
    help="seconds without a word from the PS after which this node gives up",
)
@click.option("--fault", metavar="FAULT", multiple=True, help="faults on purpose, for tests: KIND:WHO:ROUND:POINT[:SECONDS]")
@security_options
@log_level_of_node_option
def node(
    number: int,
    address: str,
    fault: tuple[str, ...],
    keys: Path | None,
    insecure: bool,
    log_level: str,
    **settings: Any,
) -> None:
    """Run node NUMBER (from 0) of a run whose PS is started by `dncfl server`."""
    log_to_stderr(log_level)
    host, port = parse_address(address)
    security = node_security(number, keys, insecure=insecure)
    tell_if_it_compiles()
    with gone_at_signal():
        from dncfl.node.process import NodeProcess

    faults = parse_faults(fault)
    if others := [str(one) for one in faults if one.node != number]:
        raise click.UsageError(f"--fault {others[0]} does not strike at node {number}, which is started here")
    known = NodeSettings(node=number, server_host=host, server_port=port, security=security, faults=faults, **settings)
    run_until_signal(NodeProcess(known).run())


@cli.command()
@config_argument
@config_options
@click.option(
    "--engine",
    type=click.Choice(["looped", "batched"]),
    default="looped",
    show_default=True,
    help="train one node after the other, bit for bit as `dncfl run`, or all at once, several times as fast, alike on average",
)
@log_level_option
def simulate(config_file: Path | None, engine: str, log_level: str, **options: object) -> None:
    """Compute the same run in one process without sockets: the reference."""
    config = _prepare(config_file, options, log_level)
    with gone_at_signal():
        from dncfl.launch.simulate import simulate_batched, simulate_run

    _report(config, simulate_batched(config) if engine == "batched" else simulate_run(config))


@cli.command()
@config_argument
@setting_options("clients", "dataset", "data_root", "partition", "seed", "json_output")
def shares(config_file: Path | None, **options: object) -> None:
    """Tell how many training samples of each class every node of a run holds."""
    config = _prepare(config_file, options, "warning")
    with gone_at_signal():
        from dncfl.launch.shares import as_text, class_counts

    counts = class_counts(config)
    print(json.dumps({"nodes": counts.tolist()}) if config.json_output else as_text(counts))
    for label in (counts.sum(axis=0) == 0).nonzero()[0].tolist():
        click.echo(f"no node holds samples of class {label}", err=True)


@cli.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", metavar="VALUE", help="run folder to write; a new one under runs/ unless given")
@click.option("--data-root", metavar="VALUE", help="folder with the data set, where it has moved")
@click.option("--json", is_flag=True, default=None, help="print the summary as one JSON object on stdout")
@log_level_option
def replay(run_folder: Path, log_level: str, **options: object) -> None:
    """Recompute the model of a recorded RUN from its trace, and compare the two."""
    config = _prepare(_config_in(run_folder), options, log_level)
    with gone_at_signal():
        from dncfl.launch.simulate import replay_run

    _report(config, replay_run(config, run_folder))


@cli.command()
@click.argument("part", type=click.Choice(["coding", "rounds", "training", "start", "scale", "all"]), default="all")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=3.0,
    show_default=True,
    help="time for each comparison of coding and training",
)
@click.option("--rounds", type=click.IntRange(4), default=20, show_default=True, help="rounds measured at a time")
@click.option("--data-root", metavar="FOLDER", help="folder with MNIST, for rounds and training on it")
@click.option("--out", metavar="FOLDER", type=click.Path(path_type=Path), help="where scale.csv and scale.png go")
@click.option("--json", "json_output", is_flag=True, help="print the figures as one JSON object on stdout")
@click.pass_context
def bench(
    context: click.Context, part: str, seconds: float, rounds: int, data_root: str | None, out: Path | None, json_output: bool
) -> None:
    """Measure dncfl against what else one could use, in turns, as ratios of medians.

    PART is coding (against galois, numpy, python-flint, zfec and pyeclib), rounds (against bare sockets, and Flower where
    flwr is installed), training (the batched engine against the looped one), start, scale (a table and a picture of growing M
    and d; needs --out), or all but scale.
    """
    if (part == "scale") != (out is not None):
        raise click.UsageError("scale needs --out FOLDER, and only scale takes it")
    for name in ("seconds", "data_root", "json_output") if part == "scale" else ():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError("of the options, scale takes --rounds and --out alone: it writes a table and a picture")
    tell_if_it_compiles()
    if out is not None:
        with gone_at_signal():
            from dncfl.launch.bench.scale import measure_scale

        measure_scale(out, rounds)
        return
    with gone_at_signal():
        from dncfl.launch.bench.command import measure

    figures = measure(part, seconds, rounds, data_root)
    if json_output:
        print(json.dumps(figures))


@cli.command()
@click.option("--trials", type=click.IntRange(0), default=60, show_default=True, help="runs with a fault at a node")
@click.option(
    "--server-trials",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="runs whose PS is killed five times and resumed",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="of the order, the nodes and the rounds")
@click.option("--log", metavar="FILE", type=click.Path(path_type=Path), help="file that gets a line of JSON for each trial")
def trials(trials: int, server_trials: int, seed: int, log: Path | None) -> None:
    """Let faults strike, run after run, and check each run by its replay.

    The trials are drawn from every kind of fault at every point of a round, for 4 and for 10 nodes: 396 in all, of which none
    comes twice before each has come once.
    """
    with gone_at_signal():
        from dncfl.launch.trials import try_faults

    try_faults(trials, server_trials, seed, log)


def _config_of(config_file: Path | None, resume: Path | None, options: Mapping[str, object]) -> Path | None:
    """The configuration file of a command that may resume a run. Raises UsageError where it would become another run."""
    if resume is None:
        return config_file
    if config_file is not None:
        raise click.UsageError(f"--resume {resume} takes the configuration from that folder: leave {config_file} out")
    if changed := [name for name, value in options.items() if value not in (None, ()) and name not in MAY_CHANGE]:
        allowed = ", ".join("--" + name.replace("_", "-") for name in MAY_CHANGE).replace("faults", "fault")
        raise click.UsageError(f"--{changed[0].replace('_', '-')} would change the run that is resumed; allowed are {allowed}")
    return _config_in(resume)


def _config_in(run_folder: Path) -> Path:
    """The configuration of a recorded run. Raises StorageError where there is none."""
    if not (run_folder / CONFIG).is_file():
        raise StorageError(f"{run_folder} is no run folder: there is no {run_folder / CONFIG}")
    return run_folder / CONFIG


def _prepare(config_file: Path | None, options: Mapping[str, object], log_level: str, *, trains: bool = True) -> Config:
    """The checked configuration, with its data set at hand; of your own, only where this machine `trains`."""
    log_to_stderr(log_level)
    config = load_config(config_file, {name: value for name, value in options.items() if value not in (None, ())})
    tell_if_it_compiles()
    if config.dataset != "digits" and (trains or not is_own(config.dataset)):
        with gone_at_signal():
            from dncfl.common.tasks.data import ensure_available

        if (training := ensure_available(config.dataset, config.data_root)) is not None:
            config.partition_scheme.split(training.labels.numpy(), config.clients, config.seed)
    return config


def _report(config: Config, summary: Mapping[str, Any]) -> None:
    """The outcome of a command on stdout: one JSON object, or a few lines."""
    if config.json_output:
        print(json.dumps(summary))
        return
    print(f"final accuracy   {summary['final_accuracy']:.2%}   (best {summary['best_accuracy']:.2%})")
    print(
        f"nodes per round  {summary['mean_recovered']:.2f} of {config.clients} recovered, "
        f"{summary['mean_direct']:.2f} heard directly"
    )
    transmissions = summary["transmissions"]
    if transmissions["lost"]:
        where = f"{transmissions['sent']} transmissions, on {len(summary['lost_links'])} links"
        print(f"lost             {transmissions['lost']} of {where}")
    if slots := summary["relay_slots"] + summary["relay_slots_saved"]:
        saved = f", {summary['bytes_saved'] / 1e6:.1f} MB of codewords saved" if summary["bytes_saved"] else ""
        print(f"relay slots      {summary['relay_slots']} of {slots} used{saved}")
    if "network" in (seconds := summary["median_round_seconds"]):
        outside = seconds["total"] - seconds["training"]
        print(f"median round     {seconds['training']:.3f} s training, {outside:.3f} s outside it")
    verdict = "   (matches the recorded run)" if summary.get("matches") else ""
    print(f"model_sha256     {summary['model_sha256']}{verdict}")
    print(f"run folder       {summary['folder']}")
