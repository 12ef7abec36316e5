# After the server is back: everything is read from it, open files and locks go on.
forget
cd $WORK/restart
diff -r /tmp/restart.files files
refused flock --nonblock held true
echo new >new
echo go >/run/landfast/go
for _ in $(seq 240); do
    [ -s /run/landfast/holder ] && break
    sleep 0.25
done
expect "the holder of the open file" fine "$(cat /run/landfast/holder)"
forget
expect "contents" "first second" "$(echo $(cat held))"
flock --timeout 30 held true || die "the lock did not end with its holder"
expect "new file" new "$(cat new)"
expect "the removed file" "" "$(ls -A | grep -e unlinked -e '^\.nfs' || true)"
cd /
rm -rf $WORK/restart
