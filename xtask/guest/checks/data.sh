# Reads, writes, appends, truncations, holes, renames and open files that are removed.
mkdir $WORK/data
cd $WORK/data
head -c 5000000 /dev/urandom >/tmp/random
cp /tmp/random big
dd if=/tmp/random of=direct bs=64k count=20 iflag=fullblock oflag=direct status=none
forget
cmp /tmp/random big
cmp -n 1310720 /tmp/random direct
dd if=direct iflag=direct bs=128k status=none | cmp -n 1310720 - /tmp/random
truncate -s 1000001 big /tmp/random
echo end | tee -a big >>/tmp/random
printf middle | tee >(dd of=big bs=1 seek=4097 conv=notrunc status=none) | dd of=/tmp/random bs=1 seek=4097 conv=notrunc status=none
truncate -s 3000000 big /tmp/random
sync big
forget
cmp /tmp/random big
truncate -s 100M hole
printf x | dd of=hole bs=1 seek=99999999 conv=notrunc status=none
forget
expect "size of a file with a hole" "104857600" "$(stat -c %s hole)"
[ "$(stat -c %b hole)" -lt 1000 ] || die "the hole takes $(stat -c %b hole) blocks"
expect "byte after the hole" x "$(dd if=hole bs=1 skip=99999999 count=1 status=none)"
exec 4<>gone
echo still here >&4
rm gone
forget
expect "removed but open" "still here" "$(cat /proc/self/fd/4 2>/dev/null || cat <&4)"
exec 4>&-
echo one >a
echo two >b
mv a b
expect "renamed over" one "$(cat b)"
mkdir from to
touch from/x
mv from/x to/y
mv -T to from
expect "directory renamed" ./from/y "$(find . -name y)"
refused rmdir from
mkdir many
seq 600 | (cd many && xargs touch)
forget
expect "entries" 600 "$(find many -type f | wc -l)"
find many -name '*7*' -delete
expect "entries left" "$(seq 600 | grep -cv 7)" "$(ls many | wc -l)"
cd /
rm -rf $WORK/data
