#!/usr/bin/env bash
# The agents' user on the pilot's broker, with its password; its rights are set by `sdfstream topics apply --acls`.
# Runs in Kafka's own image at every start, so that a new password in .env counts from then on.
set -euo pipefail
exec "${KAFKA_BIN:-/opt/kafka/bin}/kafka-configs.sh" --bootstrap-server "${BROKER:?}" --alter --entity-type users \
  --entity-name sdf-agent --add-config "SCRAM-SHA-512=[password=${AGENT_PASSWORD:?}]"
