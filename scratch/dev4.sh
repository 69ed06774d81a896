. scratch/env.sh
export PYTHON=/opt/torch/.venv/bin/python
mkdir -p $OUT/logs
timeout 330 bash scratch/clients_prebuilt.sh build/pack "$1" 2>&1 | tail -120
cp build/pack/clients/*.log $OUT/logs/ 2>/dev/null
