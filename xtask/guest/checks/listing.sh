# `ls -l` of a directory that the client has not seen: what it costs where clients see ACLs and extended attributes, and where they do not.
# The system's ls may be older than those that ask for both (GNU coreutils since 9.5), so getfattr asks in its place.
entries=200
mkdir -m 755 $WORK/listing
cd $WORK/listing
for n in $(seq $entries); do echo $n >file$n; done
requests() { awk '/per-op statistics/ { on = 1 } on && $1 ~ /^[A-Z_]+:$/ { sum += $2 } END { print sum + 0 }' /proc/self/mountstats; }
hidden=no
[ "$VERS" = 3 ] || getfattr -n system.nfs4_acl file1 >/dev/null 2>&1 || hidden=yes
cd /
forget
before=$(requests)
expect "entries" $((entries + 1)) "$(ls -l $WORK/listing | wc -l)"
(cd $WORK/listing && getfattr -d -m - file* >/dev/null)
spent=$(($(requests) - before))
echo "ls -l of $entries entries: $spent requests, hidden: $hidden"
# In hundredths of a request for an entry.
each=$((100 * spent / entries))
if [ $hidden = yes ]; then
    [ $each -le 25 ] || die "$each hundredths of a request for an entry, although nothing is shown"
elif [ "$VERS" = 4.2 ]; then
    [ $each -ge 200 ] || die "only $each hundredths of a request for an entry: nothing was asked that could be spared"
fi
rm -rf $WORK/listing
