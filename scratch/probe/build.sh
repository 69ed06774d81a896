cd "$(dirname "$0")"
n() { nvcc -std=c++20 -arch=sm_90 --expt-relaxed-constexpr -w -lineinfo -I include "${@:2}" pipe.cu -o pipe_$1 & }
n v0 -DXT=2; n v1 -DXT=2 -DX_HINT; n v2 -DXT=2 -DX_HINT -DX_HINT2; n v3 -DXT=2 -DXSLOTS=16; n v4 -DXT=2 -DXSLOTS=4

wait
