"""The command: what it prints where, and how it ends."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

import continua
from continua import cli, recipes, train
from continua.recipes import _demo

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
TINY = ["demo", "--epochs", "4", "--width", "4"]


def command(*arguments, **options):
    """The command in a process of its own."""
    environment = os.environ | {"COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", "from continua.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
        **options,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def piped(folder):
    return command(*TINY, "--run-dir", str(folder))


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"continua {continua.__version__}\n"


@pytest.mark.parametrize("command", cli.commands())
def test_help_does_not_speak_of_what_is_not_set(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        cli.run([command, "--help"])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    for noise in ("None", "(default: )", "(default: False)"):
        assert noise not in out


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
@pytest.mark.parametrize("columns", [60, 120])
def test_help(arguments, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as exit:
        cli.run(arguments)
    assert exit.value.code in (None, 0)
    out, err = capsys.readouterr()
    assert not err
    assert not CONTROL.search(out)
    assert max(map(len, out.splitlines())) <= columns
    wanted = ["--seed", "--device", "--json", "--run-dir", "--epochs"]
    assert all(word in out for word in (wanted if "demo" in arguments else ["demo", "--version"]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a command: demo"),
        (["dmeo"], "there is no command 'dmeo'; did you mean 'demo'?"),
        (["--nonsense"], "--nonsense"),
        (["demo", "--nonsense"], "--nonsense"),
        (["demo", "extra"], "extra"),
        (["demo", "--epochs"], "--epochs"),
        (["train"], "continua train needs RECIPE; --help lists the options"),
        (["train", "x", "--epochs", "4"], "options: --epochs 4; --help lists the options"),
        (["train", "x", "--epochs=4"], "settings are changed with --set epochs=...\n"),
        (["heal", "small", "healed"], "continua heal needs --teacher; --help lists the options"),
        (["train", "x", "--log", "abacus"], "invalid choice 'abacus' for argument '--log'"),
        (["demo", "--epochs", "many"], "--epochs: 'many' is not a whole number"),
        (["demo", "--epochs", "-3"], "epochs is a whole number of at least 4"),
        (["demo", "--seed", "-1"], "seed is a whole number of at least 0, not -1"),
        (["demo", "--device", "abacus"], "there is no device 'abacus' here"),
        (["demo", "--run-dir", os.devnull], "cannot write to the run folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_code_2(arguments, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_demo, "train", lambda *_, **__: pytest.fail("it trained"))
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("continua: ")
    assert err.count("\n") == 1
    assert said in err
    assert not CONTROL.search(err)


def test_a_mistake_ends_the_process_with_2():
    done = command("demo", "--epochs", "-3")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_a_warning_is_one_sentence_and_that_of_other_code_as_usual(tmp_path, capsys):
    shown = []

    def others(*told):
        shown.append(told)

    cli.show_warning(others, UserWarning("steps read\n few"), UserWarning, cli.__file__, 3)
    own = tmp_path / "my_file.py"
    cli.show_warning(others, UserWarning("of a recipe"), UserWarning, str(own), 3)
    assert capsys.readouterr().err == "continua: warning: steps read few\n"
    assert [told[2] for told in shown] == [str(own)]


def test_piped_output_is_plain_and_complete(piped, folder):
    assert piped.returncode == 0, piped.stderr
    assert not CONTROL.search(piped.stdout + piped.stderr)
    assert "training 4/4: K=8, loss " in piped.stderr
    assert max(map(len, piped.stdout.splitlines())) <= 80 + len(str(folder))
    for row in json.loads((folder / "metrics.json").read_text())["rows"]:
        assert row["basis"] in piped.stdout
        assert f"{row['parameters']:,}" in piped.stdout
        assert f"{100 * row['accuracy']:.2f} %" in piped.stdout
    assert "450 held-out images" in piped.stdout
    assert "256 images" in piped.stdout
    assert str(folder) in piped.stdout
    assert "continua demo --help" in piped.stdout


def test_the_printed_snippet_runs(piped, folder, capsys):
    lines = piped.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if "import continua as ct" in line)
    code = [line.strip() for line in lines[start : lines.index("", start)]]
    exec("\n".join(code), {})
    rows = json.loads((folder / "metrics.json").read_text())["rows"]
    half = next(row for row in rows if row["name"] == "constant4")
    assert f"{half['accuracy']:.4f}" in capsys.readouterr().out


def test_json_is_all_there_is_on_stdout(capsys, monkeypatch):
    metrics = {"recipe": "demo", "rows": [{"accuracy": 0.5}]}

    def run_demo(options, watch):
        watch(train.Progress("training", 1, 1, "K=1"))
        return recipes.DemoReport(options, (), 450, 1.0, (), metrics)

    monkeypatch.setattr(recipes, "run_demo", run_demo)
    assert cli.run(["demo", "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert json.loads(out) == metrics
    assert err == "training 1/1: K=1\n"


def test_an_interruption_is_one_sentence_and_code_130(tmp_path):
    # A shell's background jobs, and so their children, ignore interruptions.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", f"{heed}; from continua.cli import main; main()"),
            *("demo", "--epochs", "2000", "--width", "4", "--run-dir", str(tmp_path / "run")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.stderr.readline()  # training goes on
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert not out
    assert "Traceback" not in err
    assert "continua: interrupted" in err
    assert not list((tmp_path / "run").iterdir())


def everything(terminal):
    """What was written to a terminal that is closed by now; one read need not give all of it."""
    shown = b""
    with contextlib.suppress(OSError):  # how the end is told on Linux
        while part := os.read(terminal, 100_000):
            shown += part
    os.close(terminal)
    return shown.decode()


def test_a_terminal_gets_a_bar(tmp_path, monkeypatch):
    """On a terminal, stderr moves the cursor; that is what the pipe above must not see."""
    monkeypatch.setenv("TERM", "xterm")
    main, side = pty.openpty()
    with os.fdopen(side, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with cli.progress() as watch:
            for done in (1, 2):
                watch(train.Progress("training", done, 2, "K=1"))
    shown = everything(main)
    assert "training" in shown
    assert "2/2" in shown
    assert "\x1b[" in shown


@pytest.mark.parametrize("package", ["tyro", "matplotlib", "sklearn.datasets", "rich"])
def test_a_missing_extra_is_explained_before_any_work(package, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_demo, "train", lambda *_, **__: pytest.fail("it trained"))
    monkeypatch.setitem(sys.modules, package, None)
    if package == "matplotlib":  # which is imported with the recipes, and not again
        for name in [*sys.modules]:
            if name.startswith(("continua.recipes", "continua.plot", "continua.cli._commands")):
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(continua, "recipes")
    assert cli.run([*TINY, "--run-dir", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert 'pip install "continua-torch[recipes]"' in err
    assert err.count("\n") == 1


def test_importing_continua_imports_no_extra():
    code = (
        "import sys, continua, continua.cli, continua.models, continua.data; "
        "extras = ('tyro', 'rich', 'matplotlib', 'sklearn', 'transformers', 'huggingface_hub'); "
        "print([m for m in extras if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_reader_may_leave(folder, monkeypatch):
    monkeypatch.setattr("continua.cli.parse", lambda _: broken)
    assert cli.run(["demo"]) == 0


def broken():
    raise BrokenPipeError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (train.Interrupted("stopped in epoch 1"), 130),
        (PermissionError(13, "Permission denied", "runs/a"), 2),
        (MemoryError(), 2),
    ],
)
def test_what_ends_a_command_is_one_sentence(error, code, capsys, monkeypatch):
    def command():
        raise error

    monkeypatch.setattr(cli, "parse", lambda arguments: command)
    assert cli.run(["train"]) == code
    said = capsys.readouterr().err
    assert said.startswith("continua: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "epochs=1", "samples=9", "--json"],
        ["--set", "epochs=1", "--json", "--set", "samples=9"],
        ["--set=epochs=1", "--set=samples=9", "--json"],
        ["--set", "epochs=1", "--set", "samples=9", "--json"],
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_settings_may_be_given_one_by_one(words, last):
    recipe = ["stateful/digits"]
    made = cli.parse(["train", *words, *recipe] if last else ["train", *recipe, *words])
    assert (made.recipe, made.set, made.json) == (
        "stateful/digits",
        ("epochs=1", "samples=9"),
        True,
    )


def test_of_an_option_with_one_value_the_last_counts():
    assert cli.parse(["train", "stateful/digits", "--seed", "1", "--seed", "2"]).seed == 2
