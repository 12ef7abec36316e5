# From here on a round trip takes ROUND_TRIP_US more. On the way to another machine what leaves waits for all of it; on the loopback
# device both directions leave. Prints how long connections take in microseconds: the quickest one has waited for nothing else.
card=lo
[ "$SERVER" = 127.0.0.1 ] || card=$(ip -o route get "$SERVER" | sed 's/.* dev \([^ ]*\).*/\1/')
[ $card != lo ] || ROUND_TRIP_US=$((ROUND_TRIP_US / 2))
tc qdisc replace dev "$card" root netem delay "${ROUND_TRIP_US}us" limit 1000000
for _ in 1 2 3 4 5 6 7 8 9; do
    start=${EPOCHREALTIME/./}
    exec 9<>"/dev/tcp/$SERVER/$PORT"
    echo $((${EPOCHREALTIME/./} - start))
    exec 9>&-
done | sort -n | head -n 1
