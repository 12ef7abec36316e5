# Second client: takes the lock, changes the file under it, and keeps it until its power is cut.
rm -f /run/landfast/two-held
mkfifo /run/landfast/two-held
flock --exclusive $WORK/two/file sh -c "
    echo two >$WORK/two/file
    sync $WORK/two/file
    echo yes >/run/landfast/two-held
    sleep infinity" </dev/null >/dev/null 2>&1 &
read -r _ </run/landfast/two-held
