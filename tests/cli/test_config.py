"""Which setting wins, where it came from, and settings that cannot be used."""

from __future__ import annotations

import pytest


def shown(cli, *arguments, env=None):
    return cli("config", "show", "--json", *arguments, env=env).json["settings"]


def test_precedence_and_origin(cli) -> None:
    user = cli.home / ".config" / "coldsnap" / "config.yaml"
    user.parent.mkdir(parents=True)
    user.write_text("color: always\nprogress: none\nparallel: 3\nstore: oci-layout:/user\n")
    (cli.project / "coldsnap.yaml").write_text("progress: plain\nstore: oci-layout:/project\n")
    env = {"COLDSNAP_STORE": "oci-layout:/env"}
    found = shown(cli, "--store", "oci-layout:/flag", env=env)
    assert found["store"] == {"value": "oci-layout:/flag", "origin": "flag", "place": "--store"}
    found = shown(cli, env=env)
    assert found["store"] == {
        "value": "oci-layout:/env",
        "origin": "environment",
        "place": "COLDSNAP_STORE",
    }
    found = shown(cli)
    assert (found["store"]["value"], found["store"]["origin"]) == (
        "oci-layout:/project",
        "project file",
    )
    assert found["progress"]["origin"] == "project file"
    assert found["color"] == {"value": "always", "origin": "user file", "place": str(user)}
    assert found["parallel"]["value"] == "3"
    assert found["criu"]["origin"] == "default"


def test_the_inventory_is_local_yaml_if_there_is_one(cli) -> None:
    assert shown(cli)["inventory"]["value"] == "@local"
    local = cli.project / "inventories" / "local.yaml"
    local.parent.mkdir()
    local.write_text("hosts: {}\n")
    (cli.project / "coldsnap.yaml").write_text("")
    assert shown(cli)["inventory"]["value"] == str(local)


def test_paths_of_a_file_are_relative_to_it(cli) -> None:
    (cli.project / "coldsnap.yaml").write_text("inventory: inv/x.yaml\n")
    assert shown(cli)["inventory"]["value"] == str(cli.project / "inv" / "x.yaml")


def test_the_project_is_found_upwards(cli) -> None:
    (cli.project / "coldsnap.yaml").write_text("progress: none\n")
    inner = cli.project / "a" / "b"
    inner.mkdir(parents=True)
    cli.project = inner
    assert shown(cli)["progress"]["value"] == "none"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("progres: none", "config.unknown-setting", 'did you mean "progress"?'),
        ("progress: loud", "config.bad-value", "use one of auto, tty"),
        ("parallel: 0", "config.bad-value", "use a number from 1"),
        ("progress: [none]", "config.wrong-type", "is not text"),
        ("- a", "config.not-a-map", "names and values"),
        ("a: [", "config.not-yaml", "is not YAML"),
        ("color: never\ncolor: always", "config.not-yaml", "is not YAML"),
    ],
)
def test_a_project_file_that_cannot_be_used(cli, text, code, said) -> None:
    (cli.project / "coldsnap.yaml").write_text(text)
    done = cli("config", "show", code=1)
    assert f"error[{code}]" in done.err
    assert said in done.err


def test_a_project_that_is_not_there(cli) -> None:
    assert "error[config.no-project]" in cli("config", "show", "--project", "nope", code=1).err


def test_text_shows_origins(cli) -> None:
    lines = cli("config", "show", "--origin").out.splitlines()
    assert lines[2].split()[:4] == ["SETTING", "VALUE", "FROM", "WHERE"]
