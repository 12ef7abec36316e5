# Every kind of object, mode, owner and time comes back from the server as it was made.
mkdir $WORK/types
cd $WORK/types
echo text >file
chmod 4751 file
chown 1234:4321 file
chmod 6755 file # chown has taken the setuid bit
touch -d '2001-02-03 04:05:06.789012345 UTC' file
ln file hard
ln -s 'some where/else' soft
ln -s "$(printf 'x%.0s' {1..1000})" long
mkfifo -m 640 fifo
mknod -m 600 block b 7 200
mknod -m 666 null c 1 3
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
mkdir -m 1777 sticky
mkdir -m 2755 setgid
chgrp 77 setgid
chmod g+s setgid
mkdir setgid/child
touch setgid/file
name=$(printf 'n%.0s' {1..255})
touch "$name"
refused touch "${name}n"
touch -- ./- ' ' $'new\nline' $'\303\244' '*'
forget
expect file "regular file 6755 1234:4321 2 5" "$(stat -c '%F %a %u:%g %h %s' file)"
expect time "2001-02-03 04:05:06.789012345 +0000" "$(TZ=UTC stat -c %y file)"
expect hard "$(stat -c '%i %h' file)" "$(stat -c '%i %h' hard)"
expect soft 'some where/else' "$(readlink soft)"
expect long 1000 "$(readlink -n long | wc -c)"
expect fifo "fifo 640" "$(stat -c '%F %a' fifo)"
expect block "block special file 600 7,c8" "$(stat -c '%F %a %t,%T' block)"
expect null "character special file 666 1,3" "$(stat -c '%F %a %t,%T' null)"
echo nothing >null
expect socket socket "$(stat -c %F socket)"
expect sticky "directory 1777" "$(stat -c '%F %a' sticky)"
expect "group of a file below setgid" 77 "$(stat -c %g setgid/file)"
expect "directory below setgid" "77 2755" "$(stat -c '%g %a' setgid/child)"
expect names 16 "$(find . -mindepth 1 -maxdepth 1 -print0 | tr -dc '\0' | wc -c)"
[ -e "$name" ] || die "the longest name is gone"
cd /
rm -rf $WORK/types
