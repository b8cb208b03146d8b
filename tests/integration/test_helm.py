"""The Helm chart, rendered: what Kubernetes gets, that it takes it, and that the agent reads the settings in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sdfstream.agent.config_file import read_agent

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "sdfstream-agent"
NODES = {name: [{"nic": f"{name}/r0", "device": "eth1", "address": "10.0.17.1"}] for name in ("gpu-17", "gpu-18")}
OLDEST, NEWEST = "1.28", "1.37"
"""Of Kubernetes, as schemas of it are at hand."""
helm = shutil.which("helm", path=f"{os.environ['PATH']}{os.pathsep}{ROOT / '.cache' / 'bin'}")
pytestmark = pytest.mark.skipif(helm is None, reason="no helm here, and none could be built (scripts/setup chart)")


def rendered(tmp_path: Path, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    words = [str(helm), "template", "fabric", str(CHART), "--kube-version", f"{NEWEST}.0", "-f", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}


def test_the_agent_reads_every_nodes_settings(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"nodes": NODES})
    files = made["ConfigMap"]["data"]
    assert set(files) == {"gpu-17.yaml", "gpu-18.yaml"}
    for name, text in files.items():
        (host,) = read_agent(yaml.safe_load(text)).hosts
        assert (f"{host.host}.yaml", host.nics[0].nic) == (name, f"{host.host}/r0")
    assert rendered(tmp_path, {})["ConfigMap"]["data"] == {}


def test_the_agent_gets_the_nodes_network_and_little_else(tmp_path: Path) -> None:
    pod = rendered(tmp_path, {"nodes": NODES})["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    allowed = container["securityContext"]
    assert pod["hostNetwork"] and not pod["automountServiceAccountToken"]
    assert not pod.get("hostPID") and not pod.get("hostIPC")
    assert allowed["readOnlyRootFilesystem"] and not allowed["privileged"] and not allowed["allowPrivilegeEscalation"]
    assert allowed["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW", "NET_ADMIN", "SYS_NICE"]}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v] == ["sdfstream-agent"]
    assert container["args"][:2] == ["agent", "--config=/etc/sdfstream/nodes/$(NODE_NAME).yaml"]


def test_a_digest_stands_above_the_tag(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"image": {"repository": "r/sdfstream", "digest": "sha256:ab"}})
    assert made["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]["image"] == "r/sdfstream@sha256:ab"


def test_the_chart_is_clean() -> None:
    done = subprocess.run([str(helm), "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_takes_what_it_renders_and_no_key_is_misspelt(tmp_path: Path, version: str) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="scripts/setup chart brings Kubernetes's schemas")
    values = {"nodes": NODES, "image": {"repository": "r/sdfstream", "digest": "sha256:ab"}}
    for given in ({}, values):
        for document in rendered(tmp_path, given).values():
            assert kubernetes.validate(document, version, strict=True).startswith(version)
    misspelt = rendered(tmp_path, values)["DaemonSet"]
    misspelt["spec"]["template"]["spec"]["hostNetworks"] = True
    with pytest.raises(kubernetes.ValidationError, match="hostNetworks"):
        kubernetes.validate(misspelt, version, strict=True)
