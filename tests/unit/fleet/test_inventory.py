"""Inventory files: what they say, and what is said about wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet import InventoryFleet, inventory_schema, open_fleet
from coldsnap.plan.document import read_document

ROOT = Path(__file__).parents[3]
GOOD = """\
coldsnap: inventory/v1
vars: {state_dir: /srv/all, colour: red}
hosts:
  here: {connector: "@local", vars: {python: /usr/bin/python3}}
  far:
    connector: "@ssh"
    hostname: 192.0.2.7
    port: 2222
    user: ops
    key: keys/id
    known_hosts: /etc/known
    strict: accept-new
    connect_timeout: 2s
    vars: {sudo: true, sudo_user: snap}
  box: {connector: "@docker", container: web}
groups:
  all: {vars: {size: 1}}
  gpu: {hosts: [box, far], vars: {colour: blue, models: /m}}
  big: {hosts: [far], vars: {colour: green}}
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "inventory.yaml"
        path.write_text(text)
        return str(path)

    return write


def refused(path: str) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        open_fleet(path)
    return caught.value


def test_everything_an_inventory_can_say(write, tmp_path):
    fleet = open_fleet(write(GOOD))
    far = fleet.host("far").entry
    assert far.connector == "ssh"
    assert far.connect_timeout == 2.0
    assert far.data == {
        "ssh_hostname": "192.0.2.7",
        "ssh_port": 2222,
        "ssh_user": "ops",
        "ssh_key": str(tmp_path / "keys/id"),
        "ssh_known_hosts_file": "/etc/known",
        "ssh_strict_host_key_checking": "accept-new",
    }
    assert (far.has_sudo, far.sudo_user) == (True, "snap")
    assert fleet.host("box").entry.data == {"docker_identifier": "web"}


def test_variables_of_the_host_win_over_groups_over_all_over_defaults(write):
    fleet = open_fleet(write(GOOD))
    far, here, box = (dict(fleet.host(name).vars) for name in ("far", "here", "box"))
    assert (far["colour"], box["colour"], here["colour"]) == ("green", "blue", "red")
    assert (far["size"], here["size"]) == (1, 1)
    assert far["state_dir"] == "/srv/all"
    assert here["python"] == "/usr/bin/python3"
    assert (box["python"], box["sudo"]) == ("python3", False)
    assert far["models"] == "/m"
    assert "models" not in here


def test_selectors_mean_hosts_groups_or_all_in_the_order_of_the_file(write):
    fleet = open_fleet(write(GOOD))
    assert fleet.select("all") == ("here", "far", "box")
    assert fleet.select("gpu") == ("far", "box")
    assert fleet.select("here") == ("here",)
    with pytest.raises(ColdSnapError) as caught:
        fleet.select("gpus")
    assert caught.value.code == "inventory.unknown-host"
    assert '"gpu"' in caught.value.remedy


def test_the_digest_is_of_what_it_says_not_of_how(write):
    one = open_fleet(write(GOOD)).sha256
    assert open_fleet(write("# a comment\n" + GOOD)).sha256 == one
    assert open_fleet(write(GOOD.replace("port: 2222", "port: 2223"))).sha256 != one
    assert one.startswith("sha256:")


def test_at_local_needs_no_file():
    fleet = open_fleet("@local")
    assert fleet.select("all") == ("local",)
    assert fleet.host("local").vars["python"] == sys.executable


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "hint"),
    [
        ("port: 2222", "prot: 2222", "inventory.unknown-field", 8, '"port"'),
        ("port: 2222", "container: x", "inventory.unknown-field", 8, "@docker"),
        ("port: 2222", "port: 99999", "inventory.invalid-value", 8, ""),
        ("strict: accept-new", "strict: maybe", "inventory.invalid-value", 12, ""),
        ("sudo: true", "sudo: 3x", "inventory.invalid-value", 14, ""),
        ('"@ssh"', '"@shh"', "inventory.unknown-connector", 6, '"@ssh"'),
        ('    connector: "@ssh"\n', "", "inventory.missing-field", 5, "@local"),
        (", container: web", "", "inventory.missing-field", 15, "container"),
        ("hosts: [box, far]", "hosts: [box, fra]", "inventory.unknown-host", 18, '"far"'),
        ("  big:", "  far:", "inventory.name-taken", 5, ""),
        ("groups:", "group:", "inventory.unknown-field", 16, '"groups"'),
        ("inventory/v1", "inventory/v2", "inventory.invalid-value", 1, ""),
        ("  far:\n", "  'far away':\n", "inventory.invalid-value", 5, ""),
        ("size: 1", "size: !!python/x 1", "inventory.unknown-tag", 17, ""),
        ("  big:", "  gpu:", "inventory.duplicate-key", 19, ""),
    ],
)
def test_every_error_has_its_place_and_a_hint(write, old, new, code, line, hint):
    assert old in GOOD
    error = refused(write(GOOD.replace(old, new, 1)))
    assert (error.code, error.source.line) == (code, line), error
    assert hint in error.remedy


def test_all_errors_are_told_at_once(write):
    error = refused(write(GOOD.replace("port: 2222", "prot: 1").replace("container", "contain")))
    assert len((error, *error.more)) == 3


def test_a_file_that_is_no_inventory(write, tmp_path):
    assert refused(write("[1, 2]")).code == "inventory.invalid"
    assert refused(write("coldsnap: plan/v1\nhosts: {}")).code == "inventory.invalid-value"
    assert refused(str(tmp_path / "none.yaml")).code == "inventory.not-found"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "inventories").glob("*.yaml")), ids=lambda p: p.name
)
def test_the_examples_are_valid_and_the_schema_says_so_too(path):
    assert open_fleet(str(path)).select("all")
    jsonschema.validate(read_document(path).data, inventory_schema())


@pytest.mark.parametrize("field", ["prot: 22", "container: x", "port: no"])
def test_the_schema_refuses_what_we_refuse(write, field):
    path = write(GOOD.replace("port: 2222", field))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(read_document(path).data, inventory_schema())


def test_importing_the_fleet_and_reading_an_inventory_start_nothing(write):
    code = (
        "import sys, coldsnap.fleet\n"
        f"fleet = coldsnap.fleet.open_fleet({write(GOOD)!r})\n"
        "assert fleet.link.pid is None\n"
        "bad = [m for m in ('pyinfra', 'gevent', 'paramiko', 'docker') if m in sys.modules]\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_fleet_is_what_the_engine_asks_for():
    from coldsnap.engine.fleet import Fleet  # noqa: PLC0415

    wanted = {name for name in vars(Fleet) if not name.startswith("_")}
    assert wanted <= set(dir(InventoryFleet))
