#!/usr/bin/env bash
# Makes the passwords and tokens of compose.yaml: deploy/.env and deploy/secrets/. What is there already stays.
set -euo pipefail
cd "$(dirname "$0")"
umask 077

secret() { openssl rand -hex "$1"; }

if [[ ! -e .env ]]; then
    {
        echo "KERNELOPT_BROKER_PASSWORD=$(secret 16)"
        echo "KERNELOPT_REDIS_PASSWORD=$(secret 16)"
        echo "GRAFANA_PASSWORD=$(secret 8)"
    } >.env
fi

mkdir -p secrets
if [[ ! -e secrets/tokens ]]; then
    operator=$(secret 32) submitter=$(secret 32) agent=$(secret 32)
    printf '%s=operator\n%s=submitter\n%s=agent\n' "$operator" "$submitter" "$agent" >secrets/tokens
    printf '%s\n' "$operator" >secrets/operator-token
    printf '%s\n' "$agent" >secrets/agent-token
    # A container's user reads these two; the folder keeps the other users of this machine out.
    chmod 644 secrets/tokens secrets/agent-token
fi
echo 'export KERNELOPT_TOKEN=$(cat deploy/secrets/operator-token)   # for kernelopt submit, jobs, drain, ...'
