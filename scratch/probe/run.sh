cd "$(dirname "$0")"; date +%T; bash build.sh; date +%T

for v in v0 v1 v2 v3 v4; do echo "== $v"; timeout 12 ./pipe_$v; done 2>&1 | awk '/==/{printf "\n%s ",$0} /stages/{printf "%s\n",$0} /FAULT|ERR/{print} /ctas/{printf "%s/%s/%s %s; ",$1,$3,$5,$6}'
