# tar goes on when the server is back, and nothing is missing.
for _ in $(seq 600); do
    [ -s /run/landfast/cut ] && break
    sleep 0.5 # each look costs time that tar could have
done
cat /tmp/cut.errors
expect "tar's exit code" 0 "$(cat /run/landfast/cut)"
rm /run/landfast/names
forget
same_tree $REFERENCE $WORK/cut
rm -rf $WORK/cut
