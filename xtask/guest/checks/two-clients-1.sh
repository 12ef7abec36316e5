# First client: a file, and a lock on it until it is told to give it back.
mkdir $WORK/two
echo one >$WORK/two/file
echo private >$WORK/two/moved
rm -f /run/landfast/two-held /run/landfast/two-release
mkfifo /run/landfast/two-held /run/landfast/two-release
flock --exclusive $WORK/two/file sh -c 'echo yes >/run/landfast/two-held; read -r _ </run/landfast/two-release' \
    </dev/null >/dev/null 2>&1 &
read -r _ </run/landfast/two-held
