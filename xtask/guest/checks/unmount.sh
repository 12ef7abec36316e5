# Nothing is left (but what mkfs made), and the mount ends.
rm -rf $WORK
expect "entries left" "" "$(ls $MNT | grep -vx lost+found)"
umount $MNT
