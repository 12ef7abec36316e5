# Runs what comes on standard input as the user RUN_AS in the directory DIR of the mount.
cat >/run/landfast/step.sh
chmod 644 /run/landfast/step.sh
cd /
HOME=/tmp setpriv --reuid=$RUN_AS --regid=$RUN_AS --clear-groups bash -euc \
    'umask 022; cd "$1"; . /run/landfast/step.sh' step "$MNT/$DIR" </dev/null
sync -f $MNT
