# Before the server ends: durable files, an open file with a lock, a reader in the middle of a file, a file that is removed
# while it is open.
mkdir $WORK/restart
cd $WORK/restart
rm -rf /tmp/restart.files
mkdir files /tmp/restart.files
# Few processes: starting one takes longer here than a file.
for to in $PWD/files /tmp/restart.files; do
    first_files 40 | (cd $REFERENCE && xargs -d '\n' cp --parents -t $to)
done
rm -f /run/landfast/go /run/landfast/holder /run/landfast/locked
mkfifo /run/landfast/go /run/landfast/locked
head -c 3000000 /dev/urandom >/tmp/restart
cp /tmp/restart long
echo first >held
# Only what is asked for below is left open.
(
    exec 5<>held 6<long 7>unlinked 8<unlinked
    echo before >&7
    rm unlinked
    flock --exclusive 5
    head -c 1000000 <&6 >/tmp/restart.got
    echo yes >/run/landfast/locked
    read -r _ </run/landfast/go
    {
        cat <&6 >>/tmp/restart.got && cmp /tmp/restart /tmp/restart.got &&
            head -n 1 <&5 | grep -q first && echo second >&5 && sync held &&
            echo after | dd conv=notrunc,fsync status=none >&7 && [ "$(cat <&8)" = "$(printf 'before\nafter')" ] && echo fine
    } >/run/landfast/holder 2>&1
) >/dev/null 2>&1 </dev/null &
read -r _ </run/landfast/locked
sync
# The server keeps the file (OPEN4_RESULT_PRESERVE_UNLINKED), so the client need not hide it.
case $VERS in
4.[12]) expect "hidden files" "" "$(ls -A | grep '^\.nfs' || true)" ;;
esac
