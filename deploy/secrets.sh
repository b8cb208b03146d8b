#!/usr/bin/env bash
# Makes the passwords of docker-compose.yml, once, in a file .env beside it that only its owner may read. What is in the
# file already stays: run it again after an upgrade that needs another one.
#   deploy/secrets.sh [FILE]
set -euo pipefail
file=${1:-$(dirname "$0")/../.env}
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
