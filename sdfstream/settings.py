"""One YAML file with the configurations of all packages; every default is printable.

Each package owns its frozen dataclass with units in the names; pydantic checks the file against them here, once, and
refuses a misspelt key or a wrong type with the path of the key. Only this module reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from sdfstream import secret, yamlfile
from sdfstream.actuate.config import ActuateConfig
from sdfstream.alerts.config import AlertsConfig
from sdfstream.archive.retention import Retention
from sdfstream.bus.kafka.config import KafkaConfig, Principals
from sdfstream.bus.kafka.topic_rules import TopicRule
from sdfstream.detect.config import DetectConfig
from sdfstream.errors import ConfigError
from sdfstream.plan.config import PlanConfig
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig, VirtualClock
from sdfstream.probes.load import check_load
from sdfstream.sync.config import SyncConfig
from sdfstream.workload.config import WorkloadConfig

T = TypeVar("T")
_MOST_PROBLEMS: Final = 20
"""Of one file that are listed."""

_STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
for _section in (
    AgentConfig,
    HostConfig,
    NicConfig,
    SessionConfig,
    VirtualClock,
    SyncConfig,
    WorkloadConfig,
    DetectConfig,
    ActuateConfig,
    PlanConfig,
    KafkaConfig,
    Principals,
    TopicRule,
    Retention,
    AlertsConfig,
):
    with_config(_STRICT)(_section)


class Settings(BaseModel):
    """All settings of a pipeline process."""

    model_config = _STRICT

    data: Path = Path("sdfstream-data")
    """Folder for the archive, recordings, keys and sockets of running processes."""
    cluster: str = "local"
    """Name of the cluster, written into recordings."""
    bus: str = "memory"
    """``memory``, or ``kafka://host:port[,host:port]``."""
    kafka: KafkaConfig = KafkaConfig()
    """How the brokers of such a bus are reached, and the settings of its topics."""
    archive: str | None = Field(default=None, repr=False)
    """``http://user:password@host:8123/database`` of a ClickHouse server; none: chDB in ``<data>/archive``."""
    api: str = "127.0.0.1:9465"
    """``HOST:PORT`` of the read API of `up`, `demo` and `serve`, or ``off``; where that usual port is taken, any."""
    alerts: AlertsConfig = AlertsConfig()
    """An Alertmanager that `up` and `serve` push findings to."""
    retention: Retention = Retention()
    """How long the archive stores rows of each kind; a server's tables are set accordingly."""
    sync: SyncConfig = SyncConfig()
    workload: WorkloadConfig = WorkloadConfig()
    detect: DetectConfig = DetectConfig()
    actuate: ActuateConfig = ActuateConfig()
    plan: PlanConfig = PlanConfig()
    agent: AgentConfig | None = None
    """What `sdfstream agent --config` probes (read there without pydantic); the pipeline only checks it."""

    @property
    def draws_plan(self) -> bool:
        """Whether the mesh plan is drawn."""
        return self.plan.mesh == "auto" or (self.agent is not None and self.agent.mesh == "auto")


ENVIRONMENT_KEYS: Final = ("data", "cluster", "bus", "archive", "api")
"""Settings that the environment may give too, as ``SDFSTREAM_BUS`` and so on: those that differ between deployments,
or should not stand in a command line, as a password in ``archive``."""


def load(path: Path | None) -> Settings:
    """The settings of the YAML file at `path` (None: ``SDFSTREAM_CONFIG``, or all defaults).

    ``SDFSTREAM_<KEY>`` of `ENVIRONMENT_KEYS` and ``SDFSTREAM_ALERTMANAGER`` (``alerts.alertmanager``), where they are
    set and not empty, stand above the file.

    Raises
    ------
    ConfigError
        One sentence a problem, each with the path of the key.
    """
    if path is None and (named := os.environ.get("SDFSTREAM_CONFIG")):
        path = Path(named)
    given: dict[str, Any] = {
        key: value for key in ENVIRONMENT_KEYS if (value := os.environ.get(f"SDFSTREAM_{key.upper()}"))
    }
    if path is None and not given and not os.environ.get("SDFSTREAM_ALERTMANAGER"):
        return Settings()
    where = str(path or "environment")
    raw = {**(_read(path) if path else {}), **given}
    if alertmanager := os.environ.get("SDFSTREAM_ALERTMANAGER"):
        alerts = raw.get("alerts") or {}
        raw["alerts"] = {**alerts, "alertmanager": alertmanager} if isinstance(alerts, Mapping) else alerts
    found = _checked(TypeAdapter(Settings), raw, where)
    try:
        found.kafka.check()
        found.alerts.check()
        if found.agent is not None:
            check_load(found.agent, "agent.")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if found.kafka.servers:
        raise ConfigError(f"{where}: key 'kafka.servers': brokers are named by bus: kafka://HOST:PORT")
    return found


def dump(settings: BaseModel | AgentConfig, *, with_secrets: bool = False) -> str:
    """`settings` as YAML, every default written out; `load` reads it back, unless a secret stands hidden in it."""
    text: str = yaml.safe_dump(
        _plain(settings) if with_secrets else plain(settings), sort_keys=False, allow_unicode=True
    )
    return text


def plain(settings: BaseModel | AgentConfig) -> Any:
    """`settings` as JSON data that may be printed: secrets are hidden."""
    return secret.hidden(_plain(settings))


def _plain(settings: BaseModel | AgentConfig) -> Any:
    if isinstance(settings, BaseModel):
        return settings.model_dump(mode="json")
    return TypeAdapter(type(settings)).dump_python(settings, mode="json")


def _read(path: Path) -> Mapping[str, Any]:
    raw = yamlfile.read(path)
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{path} must hold keys and values at its top, not {type(raw).__name__}")
    if (at := secret.hidden_at(raw)) is not None:
        raise ConfigError(
            f"{path}: key '{at}' holds {secret.HIDDEN}, as config show prints a secret: put the secret there"
        )
    return raw


def _checked(adapter: TypeAdapter[T], raw: Mapping[str, Any], where: str) -> T:
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        problems = error.errors(include_context=False)
        said = [_sentence(problem, where) for problem in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            said.append(f"{where}: and {len(problems) - _MOST_PROBLEMS:,} more")
        raise ConfigError("; ".join(said)) from None


def _sentence(problem: Mapping[str, Any], where: str) -> str:
    path = ".".join(str(step) for step in problem["loc"])
    key = yamlfile.named(path) if path else "'(top)'"
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where}: unknown key {key}"
    if problem["type"] in ("missing", "missing_argument"):
        return f"{where}: key {key} is missing"
    said = problem["msg"][0].lower() + problem["msg"][1:]
    return f"{where}: key {key}: {said}, not {secret.quoted(path, problem['input'])}"
