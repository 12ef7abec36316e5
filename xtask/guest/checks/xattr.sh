# Extended attributes of users: set, read, listed, removed, copied, and who may (NFSv4.2).
mkdir -m 755 $WORK/xattr
cd $WORK/xattr
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
echo data >file
if [ "$VERS" != 4.2 ]; then
    refused setfattr -n user.a -v x file
    cd / && rm -rf $WORK/xattr
    exit 0
fi
value() { getfattr --only-values -n "$1" "$2"; }
for object in file .; do
    setfattr -n user.a -v one $object
    setfattr -n user.a -v two $object
    forget
    expect "value" two "$(value user.a $object)"
    setfattr -x user.a $object
    refused value user.a $object
    refused setfattr -x user.a $object
done
# More names than one reply of the list holds, and a value of some size.
for n in $(seq 60); do setfattr -n "user.name-$n-$(printf %040d 0)" -v "$n" .; done
forget
expect "names" 60 "$(getfattr -m '^user\.name' . | grep -c '^user')"
expect "value" 37 "$(value "user.name-37-$(printf %040d 0)" .)"
big=$(head -c 2000 /dev/zero | tr '\0' x)
setfattr -n user.big -v "$big" file
forget
expect "large value" "$big" "$(value user.big file)"
cp --preserve=all file copy
expect "copied" "$big" "$(value user.big copy)"
# Nothing of the server's own is to be seen or had.
expect "other namespaces" "" "$(getfattr -m - -d $MNT | grep -v -e '^#' -e '^user' -e '^system' -e '^security' || true)"
refused setfattr -n trusted.x -v x file
# Who may read may read, who may write may write.
chmod 640 file
refused as 1001 getfattr --only-values -n user.big file
chmod 644 file
expect "read by another" "$big" "$(as 1001 getfattr --only-values -n user.big file)"
refused as 1001 setfattr -n user.b -v x file
chmod 666 file
as 1001 setfattr -n user.b -v x file
forget
expect "written by another" x "$(value user.b file)"
ln -s file link
refused setfattr -h -n user.a -v x link
cd /
rm -rf $WORK/xattr
