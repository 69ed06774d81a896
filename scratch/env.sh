P=$PWD/build/pack
export LD_LIBRARY_PATH=$P/lib:$P/deps:$P/lib/nccl TUTTI_PLUGIN_PATH=$P/lib/tutti/plugins NCCL_NVLS_ENABLE=0 TUTTI_TIMEOUTS_OPERATION=5s
NCCL=/opt/torch/.venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2
PATH=$P/bin:$PATH
