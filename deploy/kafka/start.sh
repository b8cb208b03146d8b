#!/usr/bin/env bash
# Starts Kafka's own image with a cluster id of this volume's own: the one it was formatted with, or a new one.
#
# The archive knows messages by cluster id, partition and offset. A broker that began anew under an old id would number
# its messages as if they were ones the archive had already, and the archive would leave them out as repeats.
set -euo pipefail
meta=${KAFKA_LOG_DIRS:?}/meta.properties
if [[ -f $meta ]]; then
  CLUSTER_ID=$(sed -n 's/^cluster\.id=//p' "$meta")
else
  # 16 random bytes as Kafka spells them; a leading hyphen would look like an option to its tools
  CLUSTER_ID=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 1-22 | sed 's/^-/K/')
fi
export CLUSTER_ID
exec "${1:-/etc/kafka/docker/run}"
