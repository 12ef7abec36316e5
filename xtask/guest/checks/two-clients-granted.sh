# First client of version 3: the server said that it has the lock. It would have asked again after 30 s.
for _ in $(seq 250); do
    [ -s /run/landfast/two-waited ] && break
    sleep 0.1
done
waited=$(cat /run/landfast/two-waited)
[ -n "$waited" ] && [ "$waited" -lt 25 ] || die "the lock came after '$waited' seconds, or not at all"
