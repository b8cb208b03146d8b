#!/usr/bin/env bash
# Makes the passwords of docker-compose.yml, once, in a file .env beside it that only its owner may read, and the files of
# profile `watch` in secrets/. What is there already stays: run it again after an upgrade that needs another one.
#   deploy/secrets.sh [FILE]
set -euo pipefail
file=${1:-$(cd "$(dirname "$0")/.." && pwd)/.env}
umask 077
touch "$file"
chmod 600 "$file"
for name in SDFSTREAM_CLICKHOUSE_PASSWORD SDFSTREAM_KAFKA_PASSWORD; do
  if ! grep -q "^$name=." "$file"; then
    # 192 random bits; hexadecimal, since one of them stands in a URL
    printf '%s=%s\n' "$name" "$(head -c 24 /dev/urandom | od -An -vtx1 | tr -d ' \n')" >>"$file"
    echo "made $name in $file" >&2
  fi
done

# Containers read these as users of their own, so the files are readable by everybody; the folder above them lets nobody
# but its owner through.
secrets=$(dirname "$file")/secrets
mkdir -p "$secrets/files"
chmod 700 "$secrets"
chmod 755 "$secrets/files"
for name in api-token slack-url webhook-url; do # empty until you fill them (docs/alerts.md)
  [[ -e $secrets/files/$name ]] || : >"$secrets/files/$name"
done
if [[ ! -s $secrets/files/grafana-password ]]; then
  head -c 24 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$secrets/files/grafana-password"
  echo "made $secrets/files/grafana-password, of Grafana's user admin" >&2
fi
chmod 644 "$secrets"/files/*
