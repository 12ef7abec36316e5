# cp -a --sparse=always: holes stay holes, contents and times are the same, there and back.
cp -a --sparse=always /root/sparse $WORK/sparse
forget
cmp /root/sparse $WORK/sparse
expect "time" "$(stat -c %y /root/sparse)" "$(stat -c %y $WORK/sparse)"
[ "$(stat -c %b $WORK/sparse)" -lt 1000 ] || die "the copy takes $(stat -c %b $WORK/sparse) blocks"
cp -a --sparse=always $WORK/sparse /root/back
cmp /root/sparse /root/back
[ "$(stat -c %b /root/back)" -lt 1000 ] || die "the copy back takes $(stat -c %b /root/back) blocks"
rm $WORK/sparse /root/back
