# Client: a process for each file, which has it open and, but for `clean`, has written what the server does not know.
opens() { awk '/^[ \t]*OPEN(_NOATTR)?:/ { sum += $2 } END { print sum + 0 }' /proc/self/mountstats; }
echo 0 >/proc/sys/vm/dirty_writeback_centisecs # nothing is written back before it has to be
echo 360000 >/proc/sys/vm/dirty_expire_centisecs
mount_export
mkdir "$MNT/$ROUND"
cat >/root/hold.pl
for file in $FILES; do
    rm -f /run/landfast/{holds,go,says}-$file
    mkfifo /run/landfast/{holds,go,says}-$file
    perl /root/hold.pl $file "$MNT/$ROUND/$file" </dev/null >/dev/null 2>/run/landfast/error-$file &
    read -r -t 60 said <>/run/landfast/holds-$file || die "$file: $(cat /run/landfast/error-$file)"
    expect "$file" yes "$said"
done
opens >/run/landfast/opens
