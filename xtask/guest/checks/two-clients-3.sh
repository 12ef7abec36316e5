# First client: sees what the second one did, and gives the lock back.
forget
[ ! -e $WORK/two/moved ] || die "the old name is still there"
expect renamed private "$(cat $WORK/two/renamed)"
expect new new "$(cat $WORK/two/new)"
echo go >/run/landfast/two-release
wait_for() { for _ in $(seq 300); do "$@" && return; sleep 0.1; done; die "not in time: $*"; }
wait_for flock --nonblock $WORK/two/file true
