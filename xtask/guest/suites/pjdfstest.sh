# pjdfstest prints a line for each case; its exit code says nothing more. The cases that make the mount read-only for
# a while run last and in processes of their own: a file that an earlier case left open would keep it writable.
mkdir -m 755 $MNT/pjdfstest
cd /
pjdfstest() { /root/suite/pjdfstest -c "/root/suite/$1.toml" -s /run/second -p $MNT/pjdfstest "${@:2}" || true; }
pjdfstest pjdfstest $SELECTION | tee /tmp/pjdfstest.out
for name in $(sed -n 's/^\([a-z_:]*erofs[a-z_:]*\) *skipped$/\1/p' /tmp/pjdfstest.out); do
    pjdfstest pjdfstest-remount --exact "pjdfstest::tests::$name"
done
rm -rf $MNT/pjdfstest
